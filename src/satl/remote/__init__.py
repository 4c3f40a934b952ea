"""Tables, pictures and results that lie elsewhere: ``s3://``, ``gs://`` and every other address that fsspec opens.

What is read is fetched once into a cache on this machine, what is written is written here and uploaded as a whole, so
everything else in satl sees ordinary files. fsspec and its clients are imported when an address is opened.
"""
