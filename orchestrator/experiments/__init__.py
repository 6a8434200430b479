"""Studies of the methods themselves: how far their error is from what is possible."""
