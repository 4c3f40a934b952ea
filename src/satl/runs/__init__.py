"""What a run is: its configuration and how it is read, its data, its folder, what it ran on."""
