"""Rank processes: started, watched, and their failures told apart."""
