// Draws every .bp-timeline on the page from the JSON inside it. No library, no request.
(() => {
  "use strict";
  const LEFT = 84, RIGHT = 16, ROW = 24, GAP = 8, LANE = 9, TITLE = 26, AXIS = 40;
  const INK = "#1a1a1a";

  // One box: fill, hatch of the up direction, bands of backwards. Also draws the legend.
  function box(g, look, x, y, w, h) {
    g.fillStyle = look.fill;
    g.fillRect(x, y, w, h);
    if (look.up && w > 3) {
      g.save();
      g.beginPath();
      g.rect(x, y, w, h);
      g.clip();
      g.strokeStyle = look.hatch;
      g.lineWidth = 1.5;
      g.beginPath();
      // Anchored to the canvas, so that neighbouring boxes share one pattern.
      for (let k = Math.floor((x - h) / 6) * 6; k < x + w; k += 6) {
        g.moveTo(k, y + h);
        g.lineTo(k + h, y);
      }
      g.stroke();
      g.restore();
    }
    g.fillStyle = INK;
    if (look.bands > 0) g.fillRect(x, y + h - 3, w, 3);
    if (look.bands > 1) g.fillRect(x, y, w, 3);
    if (w > 2) {
      g.strokeStyle = INK;
      g.lineWidth = 0.6;
      g.strokeRect(x, y, w, h);
    }
  }

  function step(span, room) {
    const raw = span / Math.max(1, room / 90);
    const power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
  }

  const short = (value) => String(Number(value.toPrecision(6)));

  function start(root) {
    const data = JSON.parse(root.querySelector("script").textContent);
    const canvas = root.querySelector(":scope > canvas");
    const tip = root.querySelector(".bp-tip");
    const g = canvas.getContext("2d");
    let from = 0, to = data.span, hits = [], drag = null, focus = null;

    let height = 6;
    for (const panel of data.panels) {
      panel.top = height + (panel.title ? TITLE : 0);
      panel.pitch = ROW + GAP + panel.lanes * LANE;
      height = panel.top + panel.rows.length * panel.pitch + 6;
    }
    const bottom = height;
    height += AXIS;

    const room = () => canvas.clientWidth - LEFT - RIGHT;
    const x = (time) => LEFT + ((time - from) / (to - from)) * room();
    const time = (px) => from + ((px - LEFT) / room()) * (to - from);

    function draw() {
      const ratio = window.devicePixelRatio || 1;
      const width = canvas.clientWidth;
      canvas.style.height = height + "px";
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      g.clearRect(0, 0, width, height);
      hits = [];
      g.textBaseline = "middle";
      for (const panel of data.panels) {
        g.fillStyle = INK;
        g.textAlign = "left";
        g.font = "600 13px system-ui, sans-serif";
        if (panel.title) g.fillText(panel.title, 4, panel.top - TITLE / 2);
        g.textAlign = "right";
        g.font = "12px system-ui, sans-serif";
        panel.rows.forEach((name, row) => {
          g.fillStyle = INK;
          g.fillText(name, LEFT - 8, panel.top + row * panel.pitch + ROW / 2);
        });
      }
      g.save();
      g.beginPath();
      g.rect(LEFT, 0, room(), height);
      g.clip();
      g.textAlign = "center";
      for (const panel of data.panels) {
        panel.rows.forEach((_, row) => {
          g.fillStyle = "#f4f4f4";
          const y = panel.top + row * panel.pitch;
          g.fillRect(x(0), y, x(panel.span) - x(0), ROW);
        });
        // Event: [row, lane (-1 is compute), look, number, start, end, text]
        for (const event of panel.events) {
          const [row, lane, kind, number, begin, end, text] = event;
          if (end < from || begin > to) continue;
          const look = data.looks[kind];
          const left = x(begin), wide = Math.max(x(end) - left, 0.5);
          const y = panel.top + row * panel.pitch + (lane < 0 ? 0 : ROW + 1 + lane * LANE);
          const high = lane < 0 ? ROW : LANE - 1;
          if (lane < 0) {
            box(g, look, left, y, wide, high);
          } else {
            g.fillStyle = look.fill;
            g.fillRect(left, y, wide, high);
          }
          hits.push([left, y, wide, high, event, panel]);
          if (number !== "") {
            const size = lane < 0 ? 12 : 8;
            g.font = (look.up ? "italic 700 " : "") + size + "px system-ui, sans-serif";
            const visible = Math.min(left + wide, LEFT + room()) - Math.max(left, LEFT);
            if (g.measureText(number).width + 3 < visible) {
              const middle = Math.max(left, LEFT) + visible / 2;
              if (look.up) {
                g.strokeStyle = look.fill;
                g.lineWidth = 3;
                g.strokeText(number, middle, y + high / 2);
              }
              g.fillStyle = look.ink;
              g.fillText(number, middle, y + high / 2);
            }
          }
        }
        g.strokeStyle = INK;
        g.lineWidth = 1;
        g.setLineDash([4, 3]);
        g.beginPath();
        g.moveTo(x(panel.span), panel.top - 3);
        g.lineTo(x(panel.span), panel.top + panel.rows.length * panel.pitch - GAP / 2);
        g.stroke();
        g.setLineDash([]);
      }
      g.restore();
      axis();
    }

    function axis() {
      g.strokeStyle = g.fillStyle = INK;
      g.lineWidth = 1;
      g.font = "12px system-ui, sans-serif";
      g.textAlign = "center";
      g.beginPath();
      g.moveTo(LEFT, bottom);
      g.lineTo(LEFT + room(), bottom);
      const gap = step(to - from, room());
      for (let k = Math.ceil(from / gap); k * gap <= to * (1 + 1e-12); k++) {
        g.moveTo(x(k * gap), bottom);
        g.lineTo(x(k * gap), bottom + 5);
        g.fillText(short(k * gap), x(k * gap), bottom + 13);
      }
      g.stroke();
      g.fillText(data.time, LEFT + room() / 2, bottom + 30);
    }

    function zoom(factor, centre) {
      const span = Math.min(data.span, Math.max((to - from) * factor, data.span / 5000));
      const share = (centre - from) / (to - from);
      move(centre - share * span, span);
    }

    function move(begin, span) {
      from = Math.min(Math.max(0, begin), data.span - span);
      to = from + span;
      draw();
    }

    function hit(event) {
      const rect = canvas.getBoundingClientRect();
      const px = event.clientX - rect.left, py = event.clientY - rect.top;
      return hits.find(([left, y, w, h]) => px >= left && px <= left + w && py >= y && py <= y + h);
    }

    function tell(found, px, py) {
      tip.hidden = !found;
      if (!found) return;
      const [, , , , [row, , , , begin, end, text], panel] = found;
      tip.textContent = `${text}\n${panel.rows[row]}: ${short(begin)} to ${short(end)}, takes ${short(end - begin)}`;
      const room = root.clientWidth - tip.offsetWidth - 4;
      tip.style.left = Math.max(0, Math.min(px + 14, room)) + "px";
      tip.style.top = py + 18 + "px";
    }

    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const centre = time(event.clientX - canvas.getBoundingClientRect().left);
      zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, Math.min(Math.max(centre, from), to));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      drag = [event.clientX, from];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => { drag = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        move(drag[1] - ((event.clientX - drag[0]) / room()) * (to - from), to - from);
        return;
      }
      const rect = canvas.getBoundingClientRect(), outer = root.getBoundingClientRect();
      tell(hit(event), event.clientX - outer.left, event.clientY - rect.top + canvas.offsetTop);
    });
    canvas.addEventListener("pointerleave", () => tell(null));
    canvas.addEventListener("dblclick", () => move(0, data.span));
    canvas.addEventListener("keydown", (event) => {
      const span = to - from;
      const act = {
        "+": () => zoom(1 / 1.5, from + span / 2),
        "-": () => zoom(1.5, from + span / 2),
        "0": () => move(0, data.span),
        ArrowLeft: () => move(from - span / 5, span),
        ArrowRight: () => move(from + span / 5, span),
      }[event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    });
    for (const button of root.querySelectorAll("button")) {
      button.addEventListener("click", () => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: button.value })));
    }
    for (const key of root.querySelectorAll(".bp-key canvas")) {
      key.width = 52;
      key.height = 28;
      const pen = key.getContext("2d");
      pen.scale(2, 2);
      box(pen, data.looks[Number(key.dataset.look)], 0.5, 0.5, 25, 13);
    }
    new ResizeObserver(draw).observe(root);
    draw();
  }

  const all = () => document.querySelectorAll(".bp-timeline").forEach((root) => {
    if (!root.dataset.started) {
      root.dataset.started = "yes";
      start(root);
    }
  });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", all);
  else all();
})();
