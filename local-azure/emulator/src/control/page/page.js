// The page of the local Azure: shows the state and the request log, and changes nothing.
//
// Every text comes from the control API and is inserted as text, never as markup.

const POLL_MILLISECONDS = 1000;
const MAX_ROWS = 500;
const RESOURCE_GROUP = "Microsoft.Resources/resourceGroups";

const byId = (id) => document.getElementById(id);

/** Creates an element with properties and children; strings become text. */
function element(name, properties = {}, ...children) {
  const { attributes = {}, ...rest } = properties;
  const created = Object.assign(document.createElement(name), rest);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.append(...children.filter((child) => child !== undefined && child !== null));
  return created;
}

/** Reads from the control API. The header proves that the request is of the same origin. */
async function read(path) {
  const response = await fetch(`/lanyard/v1/${path}`, {
    headers: { "x-lanyard-control": "1" },
    cache: "no-store",
  });
  if (!response.ok) throw new Error(`${path}: status ${response.status}`);
  return response.json();
}

// Tabs: https://www.w3.org/WAI/ARIA/apg/patterns/tabs/

const tabs = [...document.querySelectorAll("[role=tab]")];

function selectTab(selected) {
  for (const tab of tabs) {
    const isSelected = tab === selected;
    tab.setAttribute("aria-selected", isSelected);
    tab.tabIndex = isSelected ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !isSelected;
  }
  history.replaceState(null, "", `#${selected.id.replace("tab-", "")}`);
}

for (const tab of tabs) {
  tab.addEventListener("click", () => selectTab(tab));
  tab.addEventListener("keydown", (event) => {
    const index = tabs.indexOf(tab);
    const last = tabs.length - 1;
    const targets = {
      ArrowRight: index === last ? 0 : index + 1,
      ArrowLeft: index === 0 ? last : index - 1,
      Home: 0,
      End: last,
    };
    const target = tabs[targets[event.key]];
    if (!target) return;
    event.preventDefault();
    selectTab(target);
    target.focus();
  });
}

selectTab(byId(`tab-${location.hash.slice(1)}`) ?? tabs[0]);

// Resources: https://www.w3.org/WAI/ARIA/apg/patterns/treeview/

const tree = byId("tree");
const expanded = new Set();
let selectedId = null;
let state = null;

/** The nodes below subscriptions: groups and resources by the nearest existing parent. */
function buildTree({ subscriptions, resources }) {
  const nodes = new Map();
  const roots = subscriptions.map((subscription) => {
    const id = `/subscriptions/${subscription.id}`;
    const node = { id, name: subscription.name, kind: "Subscription", body: subscription, children: [] };
    nodes.set(id.toLowerCase(), node);
    return node;
  });
  const sorted = [...resources].sort((a, b) => a.id.localeCompare(b.id));
  for (const body of sorted) {
    const kind = body.type === RESOURCE_GROUP ? "Resource group" : body.type.split("/").at(-1);
    nodes.set(body.id.toLowerCase(), { id: body.id, name: body.name, kind, body, children: [] });
  }
  for (const body of sorted) {
    let parent = body.id.toLowerCase();
    do parent = parent.slice(0, Math.max(parent.lastIndexOf("/"), 0));
    while (parent && !nodes.has(parent));
    const node = nodes.get(body.id.toLowerCase());
    (nodes.get(parent)?.children ?? roots).push(node);
  }
  return roots;
}

function treeItem(node, level, index, siblings) {
  const isParent = node.children.length > 0;
  const item = element(
    "div",
    {
      attributes: {
        role: "treeitem",
        tabindex: "-1",
        "aria-level": level,
        "aria-posinset": index + 1,
        "aria-setsize": siblings,
        "aria-selected": node.id === selectedId,
        ...(isParent ? { "aria-expanded": expanded.has(node.id) } : {}),
      },
    },
    element("span", { className: "arrow", attributes: { "aria-hidden": "true" } }, isParent ? "›" : ""),
    element("span", { className: "name" }, node.name),
    " ",
    element("span", { className: "kind", title: node.body.type ?? "" }, node.kind),
  );
  item.node = node;
  if (!isParent) return element("li", { attributes: { role: "none" } }, item);
  const children = node.children.map((child, at) => treeItem(child, level + 1, at, node.children.length));
  const group = element("ul", { hidden: !expanded.has(node.id), attributes: { role: "group" } }, ...children);
  return element("li", { attributes: { role: "none" } }, item, group);
}

/** The item of the node above, if any. */
const parentItem = (item) => item.closest("[role=group]")?.previousElementSibling;

/** The items with the same parent. */
const siblingItems = (item) => [...item.parentElement.parentElement.children].map((li) => li.firstElementChild);

function visibleItems() {
  return [...tree.querySelectorAll("[role=treeitem]")].filter((item) => !item.closest("ul[hidden]"));
}

function focusItem(item, { scroll = true } = {}) {
  for (const other of tree.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  item.tabIndex = 0;
  if (scroll) item.focus();
}

function setExpanded(item, isExpanded) {
  if (!item.hasAttribute("aria-expanded")) return;
  item.setAttribute("aria-expanded", isExpanded);
  item.nextElementSibling.hidden = !isExpanded;
  expanded[isExpanded ? "add" : "delete"](item.node.id);
}

function selectItem(item) {
  tree.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
  item.setAttribute("aria-selected", "true");
  selectedId = item.node.id;
  showDetails(item.node);
}

const nameOf = (principalId) => identityNames.get(principalId) ?? principalId;

function showDetails(node) {
  byId("details-name").textContent = node.name;
  byId("details-kind").replaceChildren(element("span", { className: "id" }, node.id));
  const scope = node.id.toLowerCase();
  const grants = state.roleAssignments.filter((assignment) => assignment.scope.toLowerCase() === scope);
  byId("access-heading").hidden = grants.length === 0;
  byId("access").replaceChildren(
    element(
      "ul",
      { className: "grants", hidden: grants.length === 0 },
      ...grants.map((grant) => element("li", {}, `${grant.role ?? grant.roleDefinitionId}: ${nameOf(grant.principalId)}`)),
    ),
  );
  byId("json").textContent = JSON.stringify(node.body, null, 2);
  byId("json").hidden = byId("json-heading").hidden = false;
}

tree.addEventListener("click", (event) => {
  const item = event.target.closest("[role=treeitem]");
  if (!item) return;
  focusItem(item);
  selectItem(item);
  setExpanded(item, item.getAttribute("aria-expanded") !== "true");
});

let typed = "";
let typedAt = 0;

/** Focuses the next item whose name starts with the typed characters. */
function typeAhead(key, items, index) {
  const now = performance.now();
  typed = now - typedAt < 500 ? typed + key : key;
  typedAt = now;
  const start = typed.length > 1 ? index : index + 1;
  const order = [...items.slice(start), ...items.slice(0, start)];
  const match = order.find((item) => item.node.name.toLowerCase().startsWith(typed.toLowerCase()));
  if (match) focusItem(match);
}

tree.addEventListener("keydown", (event) => {
  const item = event.target.closest("[role=treeitem]");
  if (!item || event.altKey || event.ctrlKey || event.metaKey) return;
  const items = visibleItems();
  const index = items.indexOf(item);
  const isExpanded = item.getAttribute("aria-expanded");
  const focusAt = (at) => items[at] && focusItem(items[at]);
  const actions = {
    ArrowDown: () => focusAt(index + 1),
    ArrowUp: () => focusAt(index - 1),
    Home: () => focusAt(0),
    End: () => focusAt(items.length - 1),
    Enter: () => selectItem(item),
    " ": () => selectItem(item),
    ArrowRight: () => (isExpanded === "false" ? setExpanded(item, true) : isExpanded && focusAt(index + 1)),
    ArrowLeft: () => {
      const parent = parentItem(item);
      if (isExpanded === "true") setExpanded(item, false);
      else if (parent) focusItem(parent);
    },
    "*": () => siblingItems(item).forEach((sibling) => setExpanded(sibling, true)),
  };
  const action = actions[event.key];
  if (!action && event.key.length !== 1) return;
  event.preventDefault();
  if (action) action();
  else typeAhead(event.key, items, index);
});

function showTree() {
  const roots = buildTree(state);
  if (expanded.size === 0) for (const root of roots) expanded.add(root.id);
  const focused = tree.querySelector('[tabindex="0"]')?.node.id;
  const hadFocus = tree.contains(document.activeElement);
  tree.replaceChildren(...roots.map((root, index) => treeItem(root, 1, index, roots.length)));
  const items = visibleItems();
  const target = items.find((item) => item.node.id === focused) ?? items[0];
  if (target) focusItem(target, { scroll: hadFocus });
  const selected = [...tree.querySelectorAll("[role=treeitem]")].find((item) => item.node.id === selectedId);
  if (selected) showDetails(selected.node);
}

// Identities

let identityNames = new Map();

function identityCards({ users, groups, applications, servicePrincipals, roleAssignments }) {
  const grants = Map.groupBy(roleAssignments, (assignment) => assignment.principalId);
  const credentialsOf = new Map(applications.map((application) => [application.clientId, application]));
  const card = (kind, object, ids, credentials) => ({
    kind,
    name: object.displayName || object.userPrincipalName || object.objectId,
    ids,
    disabled: object.enabled === false,
    grants: grants.get(object.objectId) ?? [],
    ...credentials,
  });
  return [
    ...users.map((user) => card("user", user, [user.userPrincipalName, user.objectId])),
    ...groups.map((group) => card(`group of ${group.members.length}`, group, [group.objectId])),
    ...servicePrincipals.map((principal) => {
      const application = credentialsOf.get(principal.clientId);
      const federated = [...principal.federatedCredentials, ...(application?.federatedCredentials ?? [])];
      return card(principal.kind.replace("-", " "), principal, [principal.clientId, principal.resourceId], {
        secrets: principal.secrets,
        certificates: principal.certificates,
        federated: [...new Map(federated.map((it) => [it.name, it])).values()],
      });
    }),
  ];
}

/** A scope inside of a subscription, without the subscription. */
const shortScope = (scope) => scope.replace(/^\/subscriptions\/[^/]+\//i, "");

/** The scopes of a role; several are shown on request. */
function roleGrants([role, grants]) {
  const scopes = grants.map(({ scope }) => element("span", { className: "id", title: scope }, shortScope(scope)));
  if (scopes.length === 1) return [`${role} `, ...scopes];
  const items = scopes.map((scope) => element("li", {}, scope));
  const summary = element("summary", {}, `${role}, ${scopes.length} scopes`);
  return [element("details", {}, summary, element("ul", { className: "grants" }, ...items))];
}

function identityCard(identity) {
  const list = (heading, items) =>
    items?.length
      ? [element("h3", {}, heading), element("ul", { className: "grants" }, ...items.map((item) => element("li", {}, ...item)))]
      : [];
  const credentials = [
    [identity.secrets, "client secret"],
    [identity.certificates, "certificate"],
  ].filter(([count]) => count > 0);
  return element(
    "article",
    { className: "identity", attributes: { "aria-label": identity.name } },
    element(
      "h2",
      {},
      `${identity.name} `,
      element("span", { className: "tag" }, identity.kind),
      " ",
      identity.disabled ? element("span", { className: "tag bad" }, "disabled") : null,
    ),
    ...identity.ids.filter(Boolean).map((id) => element("div", { className: "id" }, id)),
    ...list(
      "Role assignments",
      [...Map.groupBy(identity.grants, (grant) => grant.role ?? grant.roleDefinitionId)].map(roleGrants),
    ),
    ...list(
      "Federated credentials",
      identity.federated?.map((it) => [`${it.name}: ${it.subject} `, element("span", { className: "id" }, it.issuer)]),
    ),
    ...list(
      "Credentials",
      credentials.map(([count, what]) => [`${count} ${what}${count === 1 ? "" : "s"}`]),
    ),
  );
}

function showIdentities() {
  const wanted = byId("identity-filter").value.toLowerCase();
  const cards = identityCards(state)
    .filter((identity) => JSON.stringify(Object.values(identity)).toLowerCase().includes(wanted))
    .sort((a, b) => (b.grants.length > 0) - (a.grants.length > 0) || a.name.localeCompare(b.name));
  byId("identities").replaceChildren(...cards.map(identityCard));
}

byId("identity-filter").addEventListener("input", () => state && showIdentities());

// Requests

let requests = [];
let lastSequence = 0;

const statusClass = (status) => (status >= 500 ? "bad" : status >= 400 ? "warning" : "good");

function requestRow(entry) {
  const notes = [entry.operation, entry.fault && `fault: ${entry.fault}`, entry.rejection].filter(Boolean);
  return element(
    "tr",
    {},
    element("td", {}, entry.time.slice(11, 23).padEnd(12, " ")),
    element("td", {}, entry.service ?? "–"),
    element("td", { className: statusClass(entry.status) }, String(entry.status)),
    element(
      "td",
      { className: "request" },
      element("code", {}, `${entry.method} ${entry.host}${entry.path}`),
      element("div", { className: "id" }, notes.join(" · ")),
    ),
    element("td", { title: entry.caller ?? "" }, callerName(entry.caller)),
    element("td", {}, `${(entry.micros / 1000).toFixed(1)} ms`),
  );
}

const callerName = (client) => (client ? (clientNames.get(client) ?? client) : "–");
let clientNames = new Map();

function showRequests() {
  const wanted = byId("request-filter").value.toLowerCase();
  const errorsOnly = byId("errors-only").checked;
  const text = (entry) =>
    `${entry.status} ${entry.method} ${entry.host}${entry.path} ${entry.operation} ${entry.service} ${callerName(entry.caller)}`;
  const matching = requests.filter(
    (entry) => (!errorsOnly || entry.status >= 400) && text(entry).toLowerCase().includes(wanted),
  );
  byId("requests").replaceChildren(...matching.slice(-MAX_ROWS).reverse().map(requestRow));
  byId("no-requests").hidden = matching.length > 0;
}

byId("request-filter").addEventListener("input", showRequests);
byId("errors-only").addEventListener("change", showRequests);

// Polling

async function readState() {
  state = await read("export");
  const named = [...state.users, ...state.groups, ...state.servicePrincipals];
  identityNames = new Map(named.map((it) => [it.objectId, it.displayName || it.userPrincipalName]));
  clientNames = new Map(state.servicePrincipals.map((it) => [it.clientId, it.displayName]));
  byId("count-resources").textContent = state.resources.length;
  byId("count-identities").textContent = named.length;
  showTree();
  showIdentities();
}

function showClock({ now, stopped, aheadMilliseconds }) {
  byId("clock").dateTime = now;
  byId("clock").textContent = `${now.slice(0, 10)} ${now.slice(11, 19)} UTC`;
  const isAhead = Math.abs(aheadMilliseconds) >= 1000;
  byId("clock-note").textContent = stopped ? "(stopped)" : isAhead ? "(ahead of the system clock)" : "";
}

async function poll() {
  const [log, clock] = await Promise.all([read(`request-log?since=${lastSequence}`), read("clock")]);
  showClock(clock);
  const added = log.value;
  if (added.length > 0) {
    lastSequence = added.at(-1).sequence;
    requests = [...requests, ...added].slice(-20_000);
    byId("count-requests").textContent = lastSequence;
  }
  const mayHaveChanged = added.some((entry) => entry.method !== "GET" && entry.method !== "CONNECT");
  if (!state || mayHaveChanged) await readState();
  if (added.length > 0) showRequests();
}

function showConnection(isLost) {
  byId("connection").textContent = isLost ? "lost; trying again" : "live";
  byId("connection").className = isLost ? "lost" : "";
}

async function run() {
  for (;;) {
    if (!document.hidden) {
      try {
        await poll();
        showConnection(false);
      } catch (error) {
        console.warn(error);
        showConnection(true);
        // The process may have restarted with another state and an empty log.
        [state, requests, lastSequence] = [null, [], 0];
      }
    }
    await new Promise((resume) => setTimeout(resume, POLL_MILLISECONDS));
  }
}

run();
