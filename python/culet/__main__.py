"""`python -m culet`: the command `culet`."""

from culet._cli import main

if __name__ == "__main__":
    main()
