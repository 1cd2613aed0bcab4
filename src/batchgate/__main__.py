"""`python -m batchgate` is the command `batchgate`."""

from batchgate.cli import main

if __name__ == "__main__":
    main()
