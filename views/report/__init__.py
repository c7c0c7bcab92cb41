"""A whole experiment in one file, to read, to present and to import.

content.py     content of an experiment's report: sentences, tables, charts
markup.py      sentences as HTML
article.py     an experiment or a suite run as HTML, with data for its charts and playback
files.py       one HTML file of everything, cached for the next reader; `__main__.py` writes it
playback.js    plays back what the runs did and when
serving.py     reports at addresses of their own
menu.py        links and downloads of these on a page, and an archive of every chart and table
"""
