"""f(x, z): the probability of an output given a position, in bounded memory."""
