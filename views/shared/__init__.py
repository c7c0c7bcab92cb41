"""Code that every page uses: inert text, links, words, the session's choices, the store."""
