"""A whole experiment in one file, to read, to present and to bring back.

content.py     what is told of an experiment: sentences, tables, charts
slides.py      the same for a room full of people, one idea a screen
markup.py      sentences as HTML
elements.py    charts and tables as HTML
article.py     an experiment or a suite run as HTML
document.py    one HTML file of it all, which needs no network
files.py       the page, kept for the next reader; `__main__.py` writes it as a file
playback.py    what happened when, to be played back
serving.py     reports at addresses of their own
menu.py        what a page offers of all this
everything.py  every chart and table as a file of its own, in one archive
"""
