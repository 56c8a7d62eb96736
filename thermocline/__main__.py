"""``python -m thermocline``."""

from thermocline.entry import main

main()
