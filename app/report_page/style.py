"""How the page looks on a screen by day and by night, on a phone and on paper."""

STYLE = """
:root { --ink: #16212c; --soft: #51606e; --line: #d9e0e7; --back: #ffffff; --card: #f5f7f9; --grid: #e3e8ed;
  --synthetic: #0b6bcb; --real: #b35309; --other: #6b7785; --light: #c3cbd3; --good: #12703c;
  --caution: #8a5a00; --fail: #b3261e; --good-back: #e7f5ec; --caution-back: #fdf3dc; --fail-back: #fdeae8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4eaf0; --soft: #a3b1be; --line: #34414d; --back: #11181f;
  --card: #19222b; --grid: #28333e; --synthetic: #6cb4ff; --real: #f2a65a; --other: #8b98a5; --light: #4b5866;
  --good: #6fd398; --caution: #f0c05c; --fail: #ff9b92; --good-back: #12291c; --caution-back: #2d2410;
  --fail-back: #331917 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 4rem }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem }
h2 { font-size: 1.3rem; margin: 3rem 0 .25rem; padding-top: 1rem; border-top: 2px solid var(--line) }
h3 { font-size: 1.05rem; margin: 2rem 0 .25rem }
p { margin: .4rem 0; max-width: 48rem } .soft { color: var(--soft) }
code { font: .85em ui-monospace, SFMono-Regular, Menlo, monospace; overflow-wrap: anywhere }
dl.facts { display: flex; flex-wrap: wrap; gap: .25rem 1.75rem; margin: .75rem 0; padding: 0 }
dl.facts dt { color: var(--soft); font-size: .85rem } dl.facts dd { margin: 0 }
.verdict { border-left: 6px solid var(--line); background: var(--card); border-radius: 6px;
  padding: .7rem 1rem; margin: 1rem 0 }
.verdict p { margin: .15rem 0 } .verdict .level { font-weight: 700 }
.good { border-color: var(--good); background: var(--good-back) } .good .level, td .good { color: var(--good) }
.caution { border-color: var(--caution); background: var(--caution-back) }
.caution .level, td .caution { color: var(--caution) }
.fail { border-color: var(--fail); background: var(--fail-back) } .fail .level, td .fail { color: var(--fail) }
td .good, td .caution, td .fail { background: none; font-weight: 600; white-space: nowrap }
.overall { font-size: 1.1rem }
.cards { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)) }
.cards .verdict { margin: 0 } .cards h2 { margin: 0; padding: 0; border: 0; font-size: 1rem }
.figures { display: grid; gap: 1.25rem 1.75rem; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr));
  margin: 1rem 0 }
figure { margin: 0; break-inside: avoid; max-width: 34rem }
figcaption { font-size: .9rem; color: var(--soft); margin-top: .25rem } figcaption b { color: var(--ink) }
svg { width: 100%; height: auto; display: block; overflow: visible }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif } svg .name { fill: var(--ink) }
svg .grid { stroke: var(--grid) } svg .axis { stroke: var(--soft); fill: none }
svg .ideal { stroke: var(--other); stroke-dasharray: 4 4; fill: none }
svg .point { fill: var(--synthetic); fill-opacity: .55 }
svg circle.zero { fill: none; stroke: var(--fail); stroke-opacity: .7 }
svg rect.synthetic, svg circle.synthetic { fill: var(--synthetic) }
svg rect.real, svg circle.real { fill: var(--back); stroke: var(--real); stroke-width: 1.5 }
svg rect.other, svg circle.other { fill: var(--light); stroke: var(--other) }
svg line.synthetic { stroke: var(--synthetic); stroke-width: 2 } svg line.real { stroke: var(--real); stroke-width: 2 }
svg path.real { fill: none; stroke: var(--real); stroke-width: 2 }
svg .halo { fill: none; stroke: var(--back); stroke-width: 4 } svg .halo.thin { stroke-width: 2.6 }
svg .whisker { fill: none; stroke: var(--ink); stroke-width: 1.2 }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1rem; font-size: .85rem; margin: 0 0 .25rem; padding: 0;
  list-style: none }
.legend li::before { content: ""; display: inline-block; width: .75rem; height: .75rem; border-radius: 3px;
  margin-right: .4rem; border: 2px solid; vertical-align: -.1rem; print-color-adjust: exact;
  -webkit-print-color-adjust: exact }
.legend.dots li::before { border-radius: 50% }
.legend .synthetic::before { background: var(--synthetic); border-color: var(--synthetic) }
.legend .real::before { background: var(--back); border-color: var(--real) }
.legend .other::before { background: var(--light); border-color: var(--other) }
.legend .zero::before { background: var(--back); border-color: var(--fail) }
details { margin: .5rem 0 1rem } summary { cursor: pointer; padding: .35rem 0 }
.notes { margin: .4rem 0 1rem; padding-left: 1.1rem; max-width: 48rem; font-size: .92rem }
.notes li { margin: .3rem 0 } .notes small { display: block; color: var(--soft) }
.scroll { overflow-x: auto; margin: .5rem 0 1rem }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums }
caption { text-align: left; color: var(--soft); padding-bottom: .35rem }
th, td { padding: .4rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top }
thead th { font-weight: 600; border-bottom: 2px solid var(--line); white-space: nowrap }
tbody th { font-weight: 500; min-width: 12rem } td.number, th.number { text-align: right; white-space: nowrap }
td small, th small { display: block; color: var(--soft); font-weight: 400 } td.number small { white-space: nowrap }
@media screen and (max-width: 40rem) { main { padding: 1rem .9rem 3rem } body { font-size: 15px }
  h1 { font-size: 1.35rem } table { font-size: .85rem } th, td { padding: .4rem .3rem }
  thead th, thead th.number { white-space: normal; vertical-align: bottom }
  tbody th { min-width: 7rem } .metrics tbody th { min-width: 11rem } }
@media print { :root { --ink: #000; --soft: #333; --line: #bbb; --back: #fff; --card: #fff; --grid: #ddd;
  --synthetic: #0b5cad; --real: #a34a06; --other: #666; --light: #c6c6c6; --good: #0c5a2f;
  --caution: #6d4700; --fail: #98190f; --good-back: #fff; --caution-back: #fff; --fail-back: #fff }
  body { font-size: 10.5pt } main { max-width: none; padding: 0 } h2 { margin-top: 1.5rem }
  details::details-content { content-visibility: visible; block-size: auto }
  @supports selector(details::details-content) { summary { display: none } }
  tr, .verdict, figure, .notes li { break-inside: avoid } h2, h3, h2 + p, h3 + p, caption, thead { break-after: avoid }
  .figures { grid-template-columns: 1fr 1fr; align-items: start } figure:only-child { grid-column: 1 / -1 }
  .scroll { overflow: visible }
  table { font-size: 9pt } th, td { padding: .3rem .35rem } tbody th { min-width: 0; width: 38% }
  thead th, thead th.number { white-space: normal; vertical-align: bottom } }
"""
