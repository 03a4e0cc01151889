"""The style sheet of the report and the dashboard: light and dark colours, tables, cards, classes of charts.

Colours are Okabe and Ito's, which colour-blind people can distinguish.
"""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;--fg:#1c2230;--dim:#5a6478;--bg:#f3f4f7;--card:#fff;--line:#d8dde6;--rail:#e9ecf2;
--ink:#0072b2;--bad:#b54400;--good:#00704f;
--c0:#56b4e9;--c1:#0072b2;--c2:#009e73;--c3:#e69f00;--c4:#cc79a7;--c5:#d55e00;--c6:#8a93a6;--c7:#4b5468;--c8:#b9c0cd;
--y:#f0e442;--black:#1c2230}
@media (prefers-color-scheme:dark){:root{--fg:#e7eaf0;--dim:#a0a9b8;--bg:#0f1217;--card:#181c23;--line:#313846;
--rail:#252b36;--ink:#6bbdf0;--bad:#ff9d5c;--good:#4fd6ab;
--c0:#56b4e9;--c1:#2b8fd0;--c2:#14b88a;--c3:#e69f00;--c4:#cc79a7;--c5:#e8702a;--c6:#7d879a;--c7:#a7b0c0;--c8:#525c6e;
--black:#000}}
*{box-sizing:border-box}
body{margin:0;font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--fg);background:var(--bg)}
h1{font-size:1.4rem;line-height:1.25;margin:0;overflow-wrap:anywhere}h2{font-size:1.02rem;margin:0 0 .6rem}
h3{font-size:.92rem;margin:1rem 0 .3rem;overflow-wrap:anywhere}
p{margin:.3rem 0;overflow-wrap:anywhere}a{color:var(--ink)}.dim{color:var(--dim)}.bad{color:var(--bad)}
.good{color:var(--good)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
th{text-align:left;font-weight:600;color:var(--dim);font-size:.85rem}
th,td{padding:.32rem 1rem .32rem 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:break-word}
td:last-child:not(.n){min-width:9rem}tr:last-child td{border-bottom:0}
td:last-child,th:last-child{padding-right:.1rem}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,monospace;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.6rem,1fr));gap:.7rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.6rem .8rem;min-width:0}
.card span{display:block;color:var(--dim);font-size:.82rem}
.card b{display:block;font-size:1.22rem;line-height:1.3;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.card small{color:var(--dim)}
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:1rem;min-width:0}
figure{margin:0}figure+figure{margin-top:.9rem}figcaption{color:var(--dim);font-size:.85rem;margin-top:.35rem}
svg{display:block;overflow:visible;max-width:100%}svg svg{overflow:hidden}
.plot{display:grid;grid-template-columns:auto minmax(0,1fr)}
figure text{fill:var(--dim);font:12px system-ui,sans-serif;font-variant-numeric:tabular-nums}
.scale text{text-anchor:end}
text.strong{fill:var(--fg);paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round}
.rows text.strong{stroke:none}text.quiet{font-size:11px;fill:var(--fg);pointer-events:none}
figure path{vector-effect:non-scaling-stroke}.grid{stroke:var(--line);stroke-width:1px;fill:none}
.base{stroke:var(--dim);stroke-width:1px;fill:none}
.fill{stroke:var(--card);stroke-width:.5px;vector-effect:non-scaling-stroke}.fill.soft{fill-opacity:.18;stroke:none}
.line{fill:none!important;stroke-width:2px;stroke-linejoin:round}
.line.d1{stroke-dasharray:6 3}.line.d2{stroke-dasharray:2 3}
.limit{stroke:var(--fg);stroke-width:1.5px;stroke-dasharray:7 4;fill:none}
.peak{stroke:var(--fg);stroke-width:1px;stroke-opacity:.55;fill:none}.legend .peak{height:2px;background:var(--fg)}
.ahead{stroke:var(--bad);stroke-width:2px;stroke-dasharray:3 3;fill:none}
.k0{fill:var(--c0);background:var(--c0)}.k1{fill:var(--c1);background:var(--c1)}
.k2{fill:var(--c2);background:var(--c2)}.k3{fill:var(--c3);background:var(--c3)}
.k4{fill:var(--c4);background:var(--c4)}
.k5{fill:var(--c5);background:var(--c5)}.k6{fill:var(--c6);background:var(--c6)}
.k7{fill:var(--c7);background:var(--c7)}.k8{fill:var(--c8);background:var(--c8)}
.line.k0{stroke:var(--c0)}.line.k1{stroke:var(--c1)}.line.k2{stroke:var(--c2)}.line.k3{stroke:var(--c3)}
.line.k4{stroke:var(--c4)}.line.k5{stroke:var(--c5)}.line.k6{stroke:var(--c7)}.line.k7{stroke:var(--c7)}
.line.k8{stroke:var(--c8)}
.shade{fill:var(--c5);fill-opacity:.13}.level{fill-opacity:.16}.l1{fill:var(--y);background:var(--y)}.l2{fill:var(--c3);background:var(--c3)}
.l3{fill:var(--c5);background:var(--c5)}.l4{fill:var(--black);background:var(--black)}
.hit rect{fill:transparent}.hit path{stroke:var(--fg);stroke-width:1px;opacity:0}.hit:hover path{opacity:.6}
.rail{fill:var(--rail)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem .9rem;margin:.45rem 0 0;padding:0;list-style:none;font-size:.85rem;
color:var(--dim)}.legend li{display:flex;align-items:center;gap:.35rem;min-width:0;overflow-wrap:anywhere}
.legend i{flex:none;width:.75rem;height:.75rem;border-radius:.15rem}
.legend b{color:var(--fg);font-weight:600;font-variant-numeric:tabular-nums;white-space:nowrap}
.f-in{fill:var(--c6)}.f-made{fill:var(--c1)}.f-kept{fill:var(--c2)}.f-dropped{fill:var(--c3)}.f-duplicates{fill:var(--c4)}
.f-quarantined{fill:var(--c5)}.f-aside{fill:var(--c8)}
.map{width:100%;height:auto}.map .cut{stroke:var(--card);stroke-width:1.6;fill:none}
.s-waiting{fill:var(--rail);background:var(--rail)}.s-running{fill:var(--c3);background:var(--c3)}
.s-committed{fill:var(--c2);background:var(--c2)}.s-part{fill:var(--c0);background:var(--c0)}
circle.s-quarantined{fill:var(--card);stroke:var(--c5);stroke-width:1.6}
.legend .s-quarantined{border:2px solid var(--c5);border-radius:50%}
path.s-split{stroke:var(--fg);stroke-width:1.2;fill:none}
.legend .s-split{background:linear-gradient(to top right,transparent 42%,var(--fg) 42% 58%,transparent 58%)}
"""
