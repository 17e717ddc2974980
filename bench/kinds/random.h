// The random numbers of a seed (Knuth, The Art of Computer Programming, volume 2, 3.3.4, the constants of MMIX).
static unsigned long state;

// A number from 0 to `limit` - 1.
static unsigned below(unsigned limit) {
  state = state * 6364136223846793005UL + 1442695040888963407UL;
  return (state >> 33) % limit;
}
