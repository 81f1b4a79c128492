//! Replies with one resource or a page of resources.

use http::StatusCode;
use lanyard_emulator_state::directory::EntraDirectory;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Map, Value, json};
use url::form_urlencoded::byte_serialize;

use super::access::GraphCall;
use super::entity::{GraphEntity, selected_json};
use super::error::GraphError;
use super::filter::FilterValue;
use super::query::{ListQuery, PagePosition, is_eventual, names};

const GRAPH_JSON: &str = "application/json;odata.metadata=minimal;odata.streaming=true;IEEE754Compatible=false;charset=utf-8";

/// A reply with a resource.
pub(super) fn json_reply(status: StatusCode, body: &Value) -> ServiceReply {
    ServiceReply::empty(status)
        .with_body(GRAPH_JSON, body.to_string())
        .with_header("odata-version", "4.0")
}

/// A reply with one resource of a collection.
pub(super) fn object_reply(
    call: &GraphCall<'_, '_>,
    status: StatusCode,
    collection: &str,
    mut json: Map<String, Value>,
) -> ServiceReply {
    let context = format!("{}/$metadata#{collection}/$entity", call.root_url());
    json.insert("@odata.context".to_owned(), json!(context));
    json_reply(status, &Value::Object(json))
}

/// A reply without content: 204.
pub(super) fn no_content() -> ServiceReply {
    ServiceReply::empty(StatusCode::NO_CONTENT)
}

/// The reply with one resource of a collection, with the properties that `$select` names.
pub(super) fn entity_reply<E: GraphEntity>(
    call: &GraphCall<'_, '_>,
    status: StatusCode,
    collection: &str,
    entity: &E,
) -> Result<ServiceReply, GraphError> {
    let select = names(call.context.request.query("$select"));
    check_selection::<E>(&select)?;
    let expand = names(call.context.request.query("$expand"));
    let body = selected_json(call.directory(), entity, &select, &expand)?;
    let selected = selection_suffix(&select);
    Ok(object_reply(call, status, &format!("{collection}{selected}"), body))
}

/// The reply to a creation, with the URL of the new object.
pub(super) fn created_reply<E: GraphEntity>(
    call: &GraphCall<'_, '_>,
    collection: &str,
    entity: &E,
) -> Result<ServiceReply, GraphError> {
    let location = format!("{}/{collection}/{}", call.root_url(), entity.id());
    let reply = entity_reply(call, StatusCode::CREATED, collection, entity)?;
    Ok(reply.with_header("location", location))
}

/// The reply with a page of the resources that match the query.
pub(super) fn list_reply<'a, E: GraphEntity + 'a>(
    call: &GraphCall<'_, '_>,
    collection: &str,
    query: &ListQuery,
    entities: impl Iterator<Item = &'a E>,
) -> Result<ServiceReply, GraphError> {
    check_selection::<E>(&query.select)?;
    let directory = call.directory();
    let known = entities.filter(|entity| is_known(call, *entity));
    let matches = ordered_matches(directory, query, known)?;
    let total = matches.len();
    let after = query.after.as_ref();
    let is_descending = query.order.as_ref().is_some_and(|order| order.is_descending);
    let is_later = |position: &PagePosition| {
        after.is_none_or(|after| if is_descending { position < after } else { position > after })
    };
    let mut rest = matches.into_iter().filter(|(position, _)| is_later(position)).peekable();
    let mut items = Vec::new();
    let mut last = None;
    while items.len() < query.page_size {
        let Some((position, entity)) = rest.next() else { break };
        let item = selected_json(directory, entity, &query.select, &query.expand)?;
        items.push(Value::Object(item));
        last = Some(position);
    }
    let selected = selection_suffix(&query.select);
    let mut body = Map::new();
    let context = format!("{}/$metadata#{collection}{selected}", call.root_url());
    body.insert("@odata.context".to_owned(), json!(context));
    if query.is_advanced {
        body.insert("@odata.count".to_owned(), json!(total));
    }
    if let Some(last) = last.filter(|_| rest.peek().is_some()) {
        body.insert("@odata.nextLink".to_owned(), json!(next_link(call, &last)));
    }
    body.insert("value".to_owned(), Value::Array(items));
    Ok(json_reply(StatusCode::OK, &Value::Object(body)))
}

/// The number of the resources that match the query, as text: the reply of `/$count`.
pub(super) fn count_reply<'a, E: GraphEntity + 'a>(
    call: &GraphCall<'_, '_>,
    entities: impl Iterator<Item = &'a E>,
) -> Result<ServiceReply, GraphError> {
    if !is_eventual(call) {
        return Err(GraphError::malformed("$count is not currently supported."));
    }
    let query = ListQuery::parse_advanced::<E>(call)?;
    let known = entities.filter(|entity| is_known(call, *entity));
    let matches = ordered_matches(call.directory(), &query, known)?;
    Ok(ServiceReply::text(StatusCode::OK, matches.len().to_string()))
}

/// Whether Microsoft Graph knows an object: a new one is unknown until it is replicated. Entities
/// other than directory objects have ids of their own.
fn is_known<E: GraphEntity>(call: &GraphCall<'_, '_>, entity: &E) -> bool {
    call.directory().is_replicated() || entity.id().parse().map_or(true, |id| call.is_known(id))
}

/// The resources that match filter and search, in the order of the list.
fn ordered_matches<'a, E: GraphEntity + 'a>(
    directory: &EntraDirectory,
    query: &ListQuery,
    entities: impl Iterator<Item = &'a E>,
) -> Result<Vec<(PagePosition, &'a E)>, GraphError> {
    let filter = query.filter.as_ref();
    let order = match &query.order {
        None => None,
        Some(order) => Some(sortable_property::<E>(&order.property)?),
    };
    if order.is_some() && filter.is_some() && !query.is_advanced {
        return Err(GraphError::unsupported_query("Sorting not supported for current query."));
    }
    if let Some(search) = &query.search {
        sortable_property::<E>(&search.property)?;
    }
    let text_of = |entity: &E, property: &str| match entity.query_value(directory, property) {
        FilterValue::Text(text) => text.to_lowercase(),
        _ => String::new(),
    };
    let mut matches: Vec<_> = entities
        .filter(|entity| {
            filter.is_none_or(|filter| {
                filter.matches(&|property: &str| entity.query_value(directory, property))
            })
        })
        .filter(|entity| {
            query
                .search
                .as_ref()
                .is_none_or(|search| search.matches(&text_of(entity, &search.property)))
        })
        .map(|entity| {
            let order_value = order.map_or_else(String::new, |property| text_of(entity, property));
            (PagePosition { order_value, id: entity.id() }, entity)
        })
        .collect();
    matches.sort_by(|(one, _), (other, _)| one.cmp(other));
    if query.order.as_ref().is_some_and(|order| order.is_descending) {
        matches.reverse();
    }
    Ok(matches)
}

fn sortable_property<E: GraphEntity>(name: &str) -> Result<&'static str, GraphError> {
    let known = E::SORTABLE.iter().find(|known| known.eq_ignore_ascii_case(name));
    known.copied().ok_or_else(|| {
        GraphError::unsupported_query(format!(
            "Unsupported or invalid sort or search property '{name}' of resource '{}'.",
            E::TARGET.resource
        ))
    })
}

fn check_selection<E: GraphEntity>(select: &[String]) -> Result<(), GraphError> {
    let is_known = |name: &String| {
        E::PROPERTIES.is_empty()
            || name == "*"
            || E::PROPERTIES.iter().any(|property| property.name.eq_ignore_ascii_case(name))
    };
    match select.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => Err(GraphError::malformed(format!(
            "Parsing OData Select and Expand failed: Could not find a property named '{name}' on type 'microsoft.graph.{}'.",
            E::TARGET.type_name
        ))),
    }
}

/// The selected properties as they appear in `@odata.context`.
fn selection_suffix(select: &[String]) -> String {
    if select.is_empty() { String::new() } else { format!("({})", select.join(",")) }
}

/// The URL of the next page, on the host that the client used.
fn next_link(call: &GraphCall<'_, '_>, last: &PagePosition) -> String {
    let request = call.context.request;
    let token = last.token();
    let options = request.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let options = options
        .filter(|(name, _)| !name.eq_ignore_ascii_case("$skiptoken"))
        .chain([("$skiptoken", token.as_str())]);
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    // The `$` of an option is not encoded, as in Microsoft Graph.
    let query: Vec<_> = options
        .map(|(name, value)| format!("{}={}", encode(name).replace("%24", "$"), encode(value)))
        .collect();
    format!("{}{}?{}", request.origin(), request.path, query.join("&"))
}
