"""Is there; what torch would write with it is kept by a stand-in of the test."""
