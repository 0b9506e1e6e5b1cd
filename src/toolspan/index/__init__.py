"""What files say, kept between commands: `cache.py` stores it, `survey.py` asks it first."""
