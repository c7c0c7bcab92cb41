"""A whole experiment in one file, to read, to present and to bring back.

content.py     what is told of an experiment: sentences, tables, charts
slides.py      the same for a room full of people, one idea a screen
document.py    one HTML file of it all, which needs no network
everything.py  every chart and table as a file of its own, in one archive
"""
