"""`python -m latentalign`, which is also what torchrun starts."""

from latentalign.cli import main

if __name__ == "__main__":
    main()
