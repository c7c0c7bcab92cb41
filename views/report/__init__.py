"""A whole experiment in one file, to read, to present and to import.

content.py     all that a report shows of an experiment: sentences, tables, charts
markup.py      sentences as HTML
article.py     an experiment or a suite run as HTML, and what its charts and its playback need
document.py    one HTML file of it all, which needs no network
files.py       the page, kept for the next reader; `__main__.py` writes it as a file
playback.py    what happened when, to be played back
serving.py     reports at addresses of their own
menu.py        what a page offers of all this
everything.py  every chart and table as a file of its own, in one archive
"""
