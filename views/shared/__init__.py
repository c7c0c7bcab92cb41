"""What every page needs: inert text, links, words, the session's choices, the store."""
