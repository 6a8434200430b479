"""Which pair to compare next, and with what probability: the numerics of active sampling."""
