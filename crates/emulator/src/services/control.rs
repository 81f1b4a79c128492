//! The emulator's own control API, on the port itself.
//!
//! Every operation but the CA certificate wants the header `x-lanyard-control: 1`, which a web
//! page cannot send to another origin.

mod changes;
mod federation;
mod keys;
mod listing;
mod time;

use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::call::Call;
use crate::faults::FaultRule;
use crate::operations::{Operation, Service, Support};
use crate::request::Reply;
use crate::services;

/// The header that every operation wants.
const HEADER: &str = "x-lanyard-control";

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[&[
    Operation {
        id: "Authority_Get",
        method: Method::GET,
        path: "/lanyard/v1/ca.pem",
        support: Support::Full,
        handler: |call| Ok(authority(call)),
    },
    Operation {
        id: "Ledger_List",
        method: Method::GET,
        path: "/lanyard/v1/ledger",
        support: Support::Full,
        handler: |call| guarded(call, ledger),
    },
    Operation {
        id: "World_Get",
        method: Method::GET,
        path: "/lanyard/v1/world",
        support: Support::Full,
        handler: |call| guarded(call, |call| Ok(listing::world(call))),
    },
    Operation {
        id: "Authorization_Explain",
        method: Method::GET,
        path: "/lanyard/v1/explain",
        support: Support::Full,
        handler: |call| guarded(call, listing::explain),
    },
    Operation {
        id: "Operations_List",
        method: Method::GET,
        path: "/lanyard/v1/operations",
        support: Support::Full,
        handler: |call| guarded(call, |call| Ok(operations(call))),
    },
    Operation {
        id: "Guests_Get",
        method: Method::GET,
        path: "/lanyard/v1/guests",
        support: Support::Full,
        handler: |call| guarded(call, changes::guests),
    },
    Operation {
        id: "IdentityHeader_Get",
        method: Method::GET,
        path: "/lanyard/v1/identity-header",
        support: Support::Full,
        handler: |call| guarded(call, |call| Ok(changes::identity_header(call))),
    },
    Operation {
        id: "Identities_Rotate",
        method: Method::POST,
        path: "/lanyard/v1/rotate",
        support: Support::Full,
        handler: |call| guarded(call, changes::rotate),
    },
    Operation {
        id: "Drills_Add",
        method: Method::POST,
        path: "/lanyard/v1/drills",
        support: Support::Full,
        handler: |call| guarded(call, changes::drill),
    },
    Operation {
        id: "FederatedToken_Mint",
        method: Method::POST,
        path: "/lanyard/v1/federated-token",
        support: Support::Full,
        handler: |call| guarded(call, changes::mint),
    },
    Operation {
        id: "Issuers_Put",
        method: Method::PUT,
        path: "/lanyard/v1/issuers",
        support: Support::Full,
        handler: |call| guarded(call, federation::put_issuer),
    },
    Operation {
        id: "FederatedCredentials_Add",
        method: Method::POST,
        path: "/lanyard/v1/federated-credentials",
        support: Support::Full,
        handler: |call| guarded(call, federation::add_credential),
    },
    Operation {
        id: "IdentityBindings_Add",
        method: Method::POST,
        path: "/lanyard/v1/identity-bindings",
        support: Support::Full,
        handler: |call| guarded(call, federation::add_binding),
    },
    Operation {
        id: "RoleAssignments_Add",
        method: Method::POST,
        path: "/lanyard/v1/role-assignments",
        support: Support::Full,
        handler: |call| guarded(call, federation::assign_role),
    },
    Operation {
        id: "Keys_Put",
        method: Method::PUT,
        path: "/lanyard/v1/keys",
        support: Support::Full,
        handler: |call| guarded(call, keys::put),
    },
    Operation {
        id: "Clock_Get",
        method: Method::GET,
        path: "/lanyard/v1/clock",
        support: Support::Full,
        handler: |call| guarded(call, |call| Ok(time::read(call))),
    },
    Operation {
        id: "Clock_Change",
        method: Method::POST,
        path: "/lanyard/v1/clock",
        support: Support::Full,
        handler: |call| guarded(call, time::change),
    },
    Operation {
        id: "TokenPolicy_Put",
        method: Method::PUT,
        path: "/lanyard/v1/tokens",
        support: Support::Full,
        handler: |call| guarded(call, changes::set_token_policy),
    },
    Operation {
        id: "Faults_List",
        method: Method::GET,
        path: "/lanyard/v1/faults",
        support: Support::Full,
        handler: |call| guarded(call, |call| Ok(list_faults(call))),
    },
    Operation {
        id: "Faults_Add",
        method: Method::POST,
        path: "/lanyard/v1/faults",
        support: Support::Full,
        handler: |call| guarded(call, add_fault),
    },
    Operation {
        id: "Faults_Clear",
        method: Method::DELETE,
        path: "/lanyard/v1/faults",
        support: Support::Full,
        handler: |call| guarded(call, clear_faults),
    },
    Operation {
        id: "Faults_Remove",
        method: Method::DELETE,
        path: "/lanyard/v1/faults/{name}",
        support: Support::Full,
        handler: |call| guarded(call, clear_faults),
    },
]];

fn guarded(
    call: &mut Call<'_>,
    handler: fn(&mut Call<'_>) -> Result<Reply, Reply>,
) -> Result<Reply, Reply> {
    if call.request.header(HEADER) == Some("1") {
        return handler(call);
    }
    Err(refused(
        StatusCode::FORBIDDEN,
        "HeaderMissing",
        "The control API wants the header `x-lanyard-control: 1`: web pages cannot send it.",
    ))
}

fn refused(status: StatusCode, code: &str, message: &str) -> Reply {
    Reply::json(status, &json!({ "error": { "code": code, "message": message } })).because(code)
}

/// Reads the body. The message of a refusal names the field, and repeats no value.
fn body<T: DeserializeOwned>(call: &Call<'_>) -> Result<T, Reply> {
    call.request.json().map_err(|error| {
        refused(
            StatusCode::BAD_REQUEST,
            "BodyInvalid",
            &format!("The body is not what this operation takes: {error}."),
        )
    })
}

fn authority(call: &Call<'_>) -> Reply {
    let pem = call.authority.certificate_pem().to_owned();
    Reply::empty(StatusCode::OK).with_body("application/x-pem-file", pem)
}

/// `GET ledger?since=N`: the entries after number N.
fn ledger(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let since = match call.request.query("since").map(str::parse) {
        None => 0,
        Some(Ok(since)) => since,
        Some(Err(_)) => {
            return Err(refused(
                StatusCode::BAD_REQUEST,
                "SinceInvalid",
                "`since` is the number of an entry.",
            ));
        }
    };
    let entries: Vec<_> = call.ledger.since(since).collect();
    Ok(Reply::json(StatusCode::OK, &json!({ "value": entries })))
}

/// What the emulator can do, service by service.
fn operations(_: &Call<'_>) -> Reply {
    let rows: Vec<_> = Service::ALL.into_iter().flat_map(of_service).collect();
    Reply::json(StatusCode::OK, &json!({ "value": rows }))
}

fn of_service(service: Service) -> impl Iterator<Item = Value> {
    services::operations(service).iter().copied().flatten().map(move |row| {
        let (support, note) = match row.support {
            Support::Full => ("full", None),
            Support::Partial(note) => ("partial", Some(note)),
        };
        json!({
            "service": service,
            "id": row.id,
            "method": row.method.as_str(),
            "path": row.path,
            "support": support,
            "note": note,
        })
    })
}

fn list_faults(call: &Call<'_>) -> Reply {
    Reply::json(StatusCode::OK, &json!({ "value": call.world().faults.rules() }))
}

fn add_fault(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let rule: FaultRule = body(call)?;
    if rule.service == Some(Service::Control) {
        return Err(refused(
            StatusCode::BAD_REQUEST,
            "ServiceInvalid",
            "No fault touches the control API.",
        ));
    }
    let rule = rule
        .beginning(call.now)
        .map_err(|problem| refused(StatusCode::BAD_REQUEST, "FaultInvalid", problem))?;
    call.world_mut().faults.insert(rule.clone());
    Ok(Reply::json(StatusCode::CREATED, &rule))
}

fn clear_faults(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let name = Some(call.parameter("name").to_owned()).filter(|name| !name.is_empty());
    let removed = call.world_mut().faults.remove(name.as_deref());
    if name.is_some() && removed == 0 {
        return Err(refused(StatusCode::NOT_FOUND, "FaultNotFound", "No rule has this name."));
    }
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
