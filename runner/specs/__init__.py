"""What can be asked for: experiments and their parts, and the rules that their fields obey."""
