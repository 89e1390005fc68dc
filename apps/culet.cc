// culet: the fastest kernel for each matrix product, from the command line. The commands lie in
// libculet.so, whose kernels would be twice in an installation otherwise.
#include "cli_main.h"

int main(int argc, char** argv) { return culet_cli_main(argc, argv); }
