"""Widgets whose values are in the address."""

from streamlit.testing.v1 import AppTest


def page() -> None:
    import streamlit as st

    from breakeven.views.shared.address import bound

    if "elsewhere" not in st.session_state:
        st.multiselect("Model", ["mlp", "gpt2"], **bound("model", [], ["mlp", "gpt2"]))


def visit(app: AppTest, *models: str) -> tuple[list[str], str | None]:
    """The value and the key of the page's widget; then another page is visited."""
    app.query_params["model"] = list(models)
    app.run()
    shown, key = app.multiselect[0].value, app.multiselect[0].key
    app.session_state["elsewhere"] = True
    app.run()
    del app.session_state["elsewhere"]
    assert not app.multiselect
    return shown, key


def test_a_widget_of_a_page_that_was_left_leaves_its_key_to_the_next() -> None:
    app = AppTest.from_function(page)
    visits = [visit(app, *models) for models in (["mlp"], ["gpt2"], [], ["gpt2", "mlp"], ["mlp"])]
    assert [shown for shown, _ in visits] == [["mlp"], ["gpt2"], [], ["gpt2", "mlp"], ["mlp"]]
    assert {key for _, key in visits} == {"address.model"}


def test_another_address_makes_another_widget_while_the_page_is_shown() -> None:
    app = AppTest.from_function(page)
    keys = []
    for model in ("mlp", "gpt2", "mlp"):
        app.query_params["model"] = model
        app.run()
        assert app.multiselect[0].value == [model]
        keys.append(app.multiselect[0].key)
    assert keys == ["address.model", "address.model.1", "address.model.2"]


def fields() -> None:
    import streamlit as st

    from breakeven.views.shared.address import bound

    now = st.session_state.get("now", {"steps": "40", "file": "a", "models": []})
    st.text_input("Steps", **bound("plan", now["steps"]))
    st.selectbox("File", ["a", "b"], **bound("kept", now["file"], ["a", "b"]))
    st.multiselect("Model", ["mlp", "gpt2"], **bound("model", now["models"], ["mlp", "gpt2"]))


def test_a_field_that_nobody_touched_follows_its_default_and_a_choice_stays() -> None:
    app = AppTest.from_function(fields).run()
    app.session_state["now"] = {"steps": "120", "file": "b", "models": ["mlp"]}
    app.run()
    assert app.text_input[0].value == "120", "a resumed training has more steps than before"
    assert (app.selectbox[0].value, app.multiselect[0].value) == ("b", ["mlp"])
    app.text_input[0].input("500").run()
    app.selectbox[0].select("a").run()
    app.session_state["now"] = {"steps": "200", "file": "b", "models": []}
    app.run()
    assert (app.text_input[0].value, app.selectbox[0].value) == ("500", "a")
    assert app.multiselect[0].value == []


def selector() -> None:
    import pandas as pd

    from breakeven.views.shared.address import choose_suite_run

    choose_suite_run(pd.DataFrame({"suite_run": ["newer", "older"]}))


def test_an_address_from_before_a_choice_does_not_undo_the_choice_and_a_later_address_does() -> (
    None
):
    app = AppTest.from_function(selector).run()
    assert app.query_params["suite_run"] == "newer"
    app.selectbox[0].select("older").run()
    assert app.query_params["suite_run"] == "older"
    app.query_params.update({"suite_run": "newer", "against": "of the newer one"})
    app.run()  # As a part of the page that runs by itself would.
    assert app.selectbox[0].value == "older"
    assert app.query_params == {"suite_run": "older"}
    app.session_state["chosen_suite_run_replaced"] = ("newer", 0.0)  # long ago
    app.query_params["suite_run"] = "newer"
    app.run()
    assert app.selectbox[0].value == "newer"
