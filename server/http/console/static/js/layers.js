// Layered drawings of graphs: inputs on the left, what is made of them to the right.
//
// Nodes get the layer after the last of their inputs; an edge over several layers passes through
// places of its own in between; nodes are ordered within layers by where their neighbours are, so
// that few edges cross; then each moves as near to its neighbours as the order allows.

const GAP_X = 56;
const GAP_Y = 16;
const SWEEPS = 8;

/** Return {nodes: Map of id to {x, y, w, h}, edges: [{from, to, points}], width, height}. */
export function layout(nodes, edges) {
  const known = new Map(nodes.map((node) => [node.id, { ...node, inputs: [], outputs: [] }]));
  const kept = edges.filter((edge) => edge.from !== edge.to && known.has(edge.from) && known.has(edge.to));
  const forward = withoutCycles(known, kept);
  setLayers(known, forward);
  const chains = withPlaces(known, forward);
  const layers = ordered(known);
  place(layers);
  return drawn(known, layers, chains);
}

/** The edges, with those turned around that close a cycle. */
function withoutCycles(known, edges) {
  const outputs = new Map([...known.keys()].map((id) => [id, []]));
  for (const edge of edges) outputs.get(edge.from).push(edge);
  const state = new Map();
  const forward = [];
  for (const root of known.keys()) {
    if (state.has(root)) continue;
    const stack = [[root, 0]];
    state.set(root, "open");
    while (stack.length) {
      const top = stack[stack.length - 1];
      const edge = outputs.get(top[0])[top[1]++];
      if (!edge) {
        state.set(top[0], "done");
        stack.pop();
      } else if (state.get(edge.to) === "open") {
        forward.push({ ...edge, from: edge.to, to: edge.from, turned: true });
      } else {
        forward.push(edge);
        if (!state.has(edge.to)) {
          state.set(edge.to, "open");
          stack.push([edge.to, 0]);
        }
      }
    }
  }
  return forward;
}

function setLayers(known, edges) {
  const missing = new Map([...known.keys()].map((id) => [id, 0]));
  const outputs = new Map([...known.keys()].map((id) => [id, []]));
  for (const { from, to } of edges) {
    missing.set(to, missing.get(to) + 1);
    outputs.get(from).push(to);
  }
  for (const node of known.values()) node.layer = 0;
  const open = [...known.keys()].filter((id) => missing.get(id) === 0);
  while (open.length) {
    const id = open.pop();
    for (const to of outputs.get(id)) {
      known.get(to).layer = Math.max(known.get(to).layer, known.get(id).layer + 1);
      missing.set(to, missing.get(to) - 1);
      if (missing.get(to) === 0) open.push(to);
    }
  }
  for (const [id, node] of known) {
    // An input of few stands beside its first reader, not at the far left.
    const readers = outputs.get(id).map((to) => known.get(to).layer);
    if (readers.length && !edges.some((edge) => edge.to === id)) node.layer = Math.min(...readers) - 1;
  }
}

/** Put places between the ends of long edges; returns the nodes that each edge passes. */
function withPlaces(known, edges) {
  return edges.map((edge, number) => {
    const chain = [known.get(edge.from)];
    for (let layer = chain[0].layer + 1; layer < known.get(edge.to).layer; layer += 1) {
      const between = { id: `edge ${number} ${layer}`, w: 0, h: 4, layer, inputs: [], outputs: [], between: true };
      known.set(between.id, between);
      chain.push(between);
    }
    chain.push(known.get(edge.to));
    for (let i = 1; i < chain.length; i += 1) {
      chain[i - 1].outputs.push(chain[i]);
      chain[i].inputs.push(chain[i - 1]);
    }
    return { edge, chain };
  });
}

function ordered(known) {
  const layers = [];
  for (const node of known.values()) (layers[node.layer] ||= []).push(node);
  for (const layer of layers) layer.forEach((node, i) => (node.order = i));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const node of layer) {
        const near = down ? node.inputs : node.outputs;
        node.weight = near.length ? near.reduce((sum, other) => sum + other.order, 0) / near.length : node.order;
      }
      layer.sort((a, b) => a.weight - b.weight || a.order - b.order);
      layer.forEach((node, i) => (node.order = i));
    }
  }
  return layers;
}

function place(layers) {
  let x = 0;
  for (const layer of layers) {
    let y = 0;
    for (const node of layer) {
      node.x = x;
      node.y = y;
      y += node.h + GAP_Y;
    }
    x += Math.max(...layer.map((node) => node.w)) + GAP_X;
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) settle(layer, down);
  }
}

/** Move the nodes of a layer towards their neighbours, in their order and apart. */
function settle(layer, down) {
  const middle = (node) => node.y + node.h / 2;
  const wish = layer.map((node) => {
    const near = down ? node.inputs : node.outputs;
    const all = near.length ? near : down ? node.outputs : node.inputs;
    if (!all.length) return node.y;
    return all.reduce((sum, other) => sum + middle(other), 0) / all.length - node.h / 2;
  });
  // Blocks of nodes that touch, each at the mean of its nodes' wishes.
  const blocks = [];
  layer.forEach((node, i) => {
    let block = { nodes: [node], size: node.h, wishes: [wish[i]], offsets: [0] };
    block.y = wish[i];
    while (blocks.length && blocks[blocks.length - 1].y + blocks[blocks.length - 1].size + GAP_Y > block.y) {
      const before = blocks.pop();
      const shift = before.size + GAP_Y;
      block = {
        nodes: [...before.nodes, ...block.nodes],
        size: shift + block.size,
        wishes: [...before.wishes, ...block.wishes],
        offsets: [...before.offsets, ...block.offsets.map((offset) => offset + shift)],
      };
      block.y = block.wishes.reduce((sum, y, j) => sum + y - block.offsets[j], 0) / block.wishes.length;
    }
    blocks.push(block);
  });
  for (const block of blocks) block.nodes.forEach((node, i) => (node.y = block.y + block.offsets[i]));
}

function drawn(known, layers, chains) {
  const all = [...known.values()];
  const top = Math.min(0, ...all.map((node) => node.y));
  for (const node of all) node.y -= top;
  const edges = chains.map(({ edge, chain }) => {
    const points = [];
    chain.forEach((node, i) => {
      const y = node.y + node.h / 2;
      if (node.between) {
        const width = Math.max(...layers[node.layer].map((other) => other.w));
        points.push([node.x, y], [node.x + width, y]);
      } else points.push([i === 0 ? node.x + node.w : node.x, y]);
    });
    if (edge.turned) return { from: edge.to, to: edge.from, points: points.reverse(), turned: true };
    return { from: edge.from, to: edge.to, points };
  });
  const real = all.filter((node) => !node.between);
  return {
    nodes: new Map(real.map(({ id, x, y, w, h }) => [id, { x, y, w, h }])),
    edges,
    width: Math.max(0, ...real.map((node) => node.x + node.w)),
    height: Math.max(0, ...all.map((node) => node.y + node.h)),
  };
}
