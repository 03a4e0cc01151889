// The page is complete without this: it moves limits, copies commands, filters samples and moves by keys.
'use strict';
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const $ = (selector, root = document) => root.querySelector(selector);
const count = new Intl.NumberFormat('en').format;

// Another limit of one rule: how many documents pass this rule alone, from the distribution of its scores.
for (const slide of all('.slide')) {
  const { bins, side, limit } = JSON.parse(slide.dataset.rule);
  const stops = [...new Set(bins.flatMap(([low, high]) => [low, high]).filter((v) => v !== null).concat(limit))];
  stops.sort((a, b) => a - b);
  const passes = (at) => bins.reduce((sum, [low, high, n]) => {
    if (low === null && high === null) return sum;
    const from = low ?? high, to = high ?? low;
    const share = to > from ? Math.min(Math.max((to - at) / (to - from), 0), 1) : (from >= at ? 1 : 0);
    return sum + n * (side === 'at least' ? share : 1 - share);
  }, 0);
  const whole = bins.reduce((sum, bin) => sum + bin[2], 0), now = passes(limit);
  const input = $('input', slide), output = $('output', slide);
  const code = $('code[data-start]', slide.parentElement);
  const show = () => {
    const at = stops[+input.value], n = passes(at), more = Math.round(n - now);
    const text = Number(at.toPrecision(6)).toString();
    output.textContent = `${side} ${text}: about ${count(Math.round(n))} of ${count(whole)} pass this rule alone`
      + (more ? ` (${more > 0 ? '+' : '−'}${count(Math.abs(more))})` : '');
    code.textContent = code.dataset.start + text + code.dataset.end;
  };
  input.max = stops.length - 1;
  input.value = stops.indexOf(limit);
  input.addEventListener('input', show);
  slide.hidden = false;
  show();
}

for (const line of all('.copy')) {
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = 'copy';
  button.addEventListener('click', async () => {
    const code = $('code', line);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = 'copied';
    } catch {
      getSelection().selectAllChildren(code);
    }
  });
  line.append(button);
}

// Samples: search, outcome, rule, and j and k.
const tools = $('.tools');
if (tools) {
  const docs = all('.list > .doc'), search = $('input', tools), found = $('#found'), everyRule = $('#every-rule');
  const texts = docs.map((doc) => doc.textContent.toLowerCase());
  let outcome = '', rule = '';
  const filter = () => {
    const words = search.value.toLowerCase();
    let n = 0;
    docs.forEach((doc, i) => {
      const shown = (!outcome || doc.dataset.outcome === outcome) && (!rule || doc.dataset.rule === rule)
        && texts[i].includes(words);
      doc.hidden = !shown;
      n += shown;
    });
    found.textContent = n < docs.length ? `${count(n)} found` : '';
    everyRule.hidden = !rule;
    everyRule.textContent = `rule ${rule} ×`;
  };
  search.addEventListener('input', filter);
  everyRule.addEventListener('click', () => { rule = ''; filter(); });
  for (const button of all('[data-show]', tools)) {
    button.addEventListener('click', () => {
      outcome = button.dataset.show;
      all('[data-show]', tools).forEach((b) => b.setAttribute('aria-pressed', b === button));
      filter();
    });
  }
  tools.hidden = false;
  addEventListener('keydown', (event) => {
    if (!'jk'.includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(input|textarea|select)$/i.test(event.target.tagName)) return;
    const shown = docs.filter((doc) => !doc.hidden);
    if (!shown.length) return;
    const at = shown.findIndex((doc) => doc.open), next = at + (event.key === 'j' ? 1 : -1);
    const doc = shown[at < 0 ? 0 : Math.min(Math.max(next, 0), shown.length - 1)];
    shown.forEach((other) => { other.open = other === doc; });
    $('summary', doc).focus();
    doc.scrollIntoView({ block: 'nearest' });
  });
  // A click on a rule in the flow shows its section, and its documents among the samples.
  for (const link of all('svg a[href^="#rule-"]')) {
    link.addEventListener('click', () => {
      rule = document.getElementById(link.getAttribute('href').slice(1))?.dataset.rule ?? '';
      filter();
    });
  }
}

const unfold = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at instanceof HTMLDetailsElement) at.open = true;
  target.scrollIntoView();
};
addEventListener('hashchange', unfold);
unfold();
