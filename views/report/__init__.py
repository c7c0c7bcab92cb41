"""A whole experiment in one file, to read, to present and to import.

content.py       an experiment or a suite run as HTML: sentences, tables, charts
suite_tables.py  a suite run in words and tables
markup.py        sentences as HTML
report_files.py  one HTML file of everything, cached for the next reader; `__main__.py` writes it
endpoint.py      reports at addresses of their own
menu.py          links and downloads of these on a page, and an archive of every chart and table
"""
