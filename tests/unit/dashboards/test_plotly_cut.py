"""Plotly's script, cut: what figures need is there, what they do not need is gone, what is not understood is whole."""

import re
from importlib.resources import files

import pytest

from dashboards.assets import PLOTLY
from dashboards.plotly_cut import cut_plotly

MODULES = (
    "var o=1",
    "var E=(e,t,r)=>()=>{if(r)throw r[0];t=e()}",
    "var W=(e,t)=>()=>{try{return t||e((t={exports:{}}).exports,t),t.exports}catch(r){throw r}}",
    'var maps=W(()=>{(function(){if(!document.getElementById("9f"))document.head.append("map styles")})()})',
    'var util=W((a,b)=>{b.exports="util"});var open={};function helper(){return 1}var init=E(()=>{})',
    "var core=W((a,b)=>{maps(),init(),b.exports={register(){}}})",
    'var unused=W((a,b)=>{b.exports="unused"})',
    'var bar=W((a,b)=>{util(),b.exports={moduleType:"trace",name:"bar"}})',
    'var pie=W((a,b)=>{unused(),b.exports={moduleType:"trace",name:"pie"}})',
    "var main=W((a,b)=>{var P=core();P.register([pie(),bar()]);b.exports=P})",
)
BUNDLE = f"""/**
* a licence
*/
(function(f){{f()}})((() => {{
"use strict";var Plotly=(()=>{{{";".join(MODULES)};return main();}})();
/*! other licences */
window.Plotly = Plotly;
return Plotly;
}}));
"""


def test_only_what_is_reached_from_the_core_and_the_named_kinds_is_kept():
    found = cut_plotly(BUNDLE, ("bar",))
    assert found.startswith("/**\n* a licence\n*/") and "/*! other licences */" in found
    assert found.count("window.Plotly = Plotly;") == 1
    assert re.findall(r"var (\w+)=W\(", found) == ["maps", "util", "core", "bar", "main"]
    assert "function helper()" in found, "what stands in the open is kept with the module before it"
    assert "P.register([bar()])" in found
    assert "map styles" not in found


@pytest.mark.parametrize(
    "broken",
    [
        "console.log(1)",
        BUNDLE.replace("var Plotly=", "var Other="),
        BUNDLE.replace("try{return t||e(", "try{return e("),
        BUNDLE.replace("P.register([", "P.add(["),
        BUNDLE.replace('name:"bar"', 'name:"bars"'),
        BUNDLE.replace("window.Plotly", "window.Other"),
    ],
)
def test_a_bundle_that_is_made_otherwise_is_left_whole(broken):
    assert cut_plotly(broken, ("bar",)) == broken


def test_the_installed_bundle_is_cut():
    whole = (files("plotly") / "package_data" / PLOTLY).read_text(encoding="utf-8")
    found = cut_plotly(whole)
    assert len(found) < len(whole) / 3
    kinds = set(re.findall(r'moduleType:"trace",name:"(\w+)"', found))
    assert {"scatter", "bar"} <= kinds and not kinds & {"pie", "heatmap", "scattergl", "scattermap"}
