//! The emulator's own control API, directly on the port.
//!
//! Every operation except the CA certificate and the web page requires the header
//! `x-lanyard-control: 1`, which a web page cannot send to another origin.

mod clock;
mod drills;
mod federation;
mod identity_urls;
mod keys;
mod managed_clusters;
mod mutations;
mod nodes;
mod page;
mod settings;
mod sign_ins;
mod signing_keys;
mod snapshots;
mod state_export;
mod state_listing;

use http::{Method, StatusCode};
use lanyard_emulator_core::emulated_service::{
    EmulatedService, EngineError, MAX_BODY_BYTES, body_too_large_message, management_error_reply,
};
use lanyard_emulator_core::ingress::CONTROL_HEADER;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::fault_rules::FaultRule;
use lanyard_emulator_state::request::ServiceReply;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::operation_listing;

/// The web page. It contains no data, so a browser may load it without the header.
const PAGE_OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "Page_Get",
        method: Method::GET,
        path: "/",
        support: OperationSupport::Full,
        handler: |_| Ok(page::get_page()),
    },
    ServiceOperation {
        id: "Page_GetStyleSheet",
        method: Method::GET,
        path: "/lanyard/page.css",
        support: OperationSupport::Full,
        handler: |_| Ok(page::get_style_sheet()),
    },
    ServiceOperation {
        id: "Page_GetScript",
        method: Method::GET,
        path: "/lanyard/page.js",
        support: OperationSupport::Full,
        handler: |_| Ok(page::get_script()),
    },
];

/// The maximum size of a snapshot.
const MAX_SNAPSHOT_BYTES: usize = 1 << 30;

pub(crate) const SERVICE: EmulatedService = EmulatedService {
    admit_large_body: |call, operation| {
        require_control_header(call, |_| Ok(ServiceReply::empty(StatusCode::OK)))?;
        let is_snapshot = operation.id == "Snapshot_Restore";
        Ok(if is_snapshot { MAX_SNAPSHOT_BYTES } else { MAX_BODY_BYTES })
    },
    error_reply: control_engine_error,
    ..EmulatedService::new(AzureService::Control, OPERATIONS)
};

const OPERATIONS: &[&[ServiceOperation]] = &[PAGE_OPERATIONS, CONTROL_OPERATIONS];

const CONTROL_OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "Authority_Get",
        method: Method::GET,
        path: "/lanyard/v1/ca.pem",
        support: OperationSupport::Full,
        handler: |call| Ok(get_ca_certificate(call)),
    },
    ServiceOperation {
        id: "RequestLog_List",
        method: Method::GET,
        path: "/lanyard/v1/request-log",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, list_request_log),
    },
    ServiceOperation {
        id: "State_List",
        method: Method::GET,
        path: "/lanyard/v1/state",
        support: OperationSupport::Full,
        handler: |call| {
            require_control_header(call, |call| Ok(state_listing::list_azure_state(call)))
        },
    },
    ServiceOperation {
        id: "State_Export",
        method: Method::GET,
        path: "/lanyard/v1/export",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, state_export::export_state),
    },
    ServiceOperation {
        id: "Snapshot_Get",
        method: Method::GET,
        path: "/lanyard/v1/snapshot",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, snapshots::get_snapshot),
    },
    ServiceOperation {
        id: "Snapshot_Restore",
        method: Method::PUT,
        path: "/lanyard/v1/snapshot",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, snapshots::restore_snapshot),
    },
    ServiceOperation {
        id: "Authorization_Explain",
        method: Method::GET,
        path: "/lanyard/v1/explain",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, state_listing::explain_access),
    },
    ServiceOperation {
        id: "Operations_List",
        method: Method::GET,
        path: "/lanyard/v1/operations",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, |call| Ok(list_operations(call))),
    },
    ServiceOperation {
        id: "TestClients_List",
        method: Method::GET,
        path: "/lanyard/v1/test-clients",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, mutations::get_test_clients),
    },
    ServiceOperation {
        id: "IdentityHeader_Get",
        method: Method::GET,
        path: "/lanyard/v1/identity-header",
        support: OperationSupport::Full,
        handler: |call| {
            require_control_header(call, |call| Ok(mutations::get_identity_header(call)))
        },
    },
    ServiceOperation {
        id: "Identities_Rotate",
        method: Method::POST,
        path: "/lanyard/v1/rotate",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, mutations::rotate_component_credential),
    },
    ServiceOperation {
        id: "Drills_Add",
        method: Method::POST,
        path: "/lanyard/v1/drills",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, drills::start_drill_or_fault_plan),
    },
    ServiceOperation {
        id: "Drills_List",
        method: Method::GET,
        path: "/lanyard/v1/drills",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, |call| Ok(drills::list_drills(call))),
    },
    ServiceOperation {
        id: "Drills_Start",
        method: Method::POST,
        path: "/lanyard/v1/drills/{name}",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, drills::start_named_drill),
    },
    ServiceOperation {
        id: "Drills_Stop",
        method: Method::DELETE,
        path: "/lanyard/v1/drills",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, drills::stop_running_drill),
    },
    ServiceOperation {
        id: "Settings_Get",
        method: Method::GET,
        path: "/lanyard/v1/settings",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, |call| settings::get_settings(call)),
    },
    ServiceOperation {
        id: "Settings_Update",
        method: Method::PATCH,
        path: "/lanyard/v1/settings",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, settings::change_settings),
    },
    ServiceOperation {
        id: "FederatedToken_Mint",
        method: Method::POST,
        path: "/lanyard/v1/federated-token",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, mutations::mint_subject_token_for_request),
    },
    ServiceOperation {
        id: "SignIn_Get",
        method: Method::GET,
        path: "/lanyard/v1/sign-in",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, |call| Ok(sign_ins::get_settings(call))),
    },
    ServiceOperation {
        id: "SignIn_Put",
        method: Method::PUT,
        path: "/lanyard/v1/sign-in",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, sign_ins::put_settings),
    },
    ServiceOperation {
        id: "DeviceCodes_List",
        method: Method::GET,
        path: "/lanyard/v1/device-codes",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, |call| Ok(sign_ins::list_device_codes(call))),
    },
    ServiceOperation {
        id: "DeviceCodes_Decide",
        method: Method::POST,
        path: "/lanyard/v1/device-codes/{code}",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, sign_ins::decide_device_code),
    },
    ServiceOperation {
        id: "SigningKeys_Roll",
        method: Method::POST,
        path: "/lanyard/v1/signing-keys",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, signing_keys::roll_signing_key),
    },
    ServiceOperation {
        id: "Issuers_Put",
        method: Method::PUT,
        path: "/lanyard/v1/issuers",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, federation::put_issuer),
    },
    ServiceOperation {
        id: "FederatedCredentials_Add",
        method: Method::POST,
        path: "/lanyard/v1/federated-credentials",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, federation::add_federated_credential),
    },
    ServiceOperation {
        id: "IdentityBindings_Add",
        method: Method::POST,
        path: "/lanyard/v1/identity-bindings",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, federation::add_identity_binding),
    },
    ServiceOperation {
        id: "RoleAssignments_Add",
        method: Method::POST,
        path: "/lanyard/v1/role-assignments",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, federation::assign_role),
    },
    ServiceOperation {
        id: "ManagedClusters_List",
        method: Method::GET,
        path: "/lanyard/v1/managed-clusters",
        support: OperationSupport::Full,
        handler: |call| {
            require_control_header(call, |call| Ok(managed_clusters::list_clusters(call)))
        },
    },
    ServiceOperation {
        id: "ManagedClusters_Update",
        method: Method::PATCH,
        path: "/lanyard/v1/managed-clusters",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, managed_clusters::change_cluster),
    },
    ServiceOperation {
        id: "Keys_Put",
        method: Method::PUT,
        path: "/lanyard/v1/keys",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, keys::put_key_version),
    },
    ServiceOperation {
        id: "IdentityUrls_Issue",
        method: Method::POST,
        path: "/lanyard/v1/identity-urls",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, identity_urls::issue_identity_url_headers),
    },
    ServiceOperation {
        id: "Nodes_List",
        method: Method::GET,
        path: "/lanyard/v1/nodes",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, |call| Ok(nodes::list_nodes(call))),
    },
    ServiceOperation {
        id: "Nodes_Put",
        method: Method::PUT,
        path: "/lanyard/v1/nodes/{name}",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, nodes::put_node),
    },
    ServiceOperation {
        id: "Nodes_Delete",
        method: Method::DELETE,
        path: "/lanyard/v1/nodes/{name}",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, nodes::delete_node),
    },
    ServiceOperation {
        id: "Clock_Get",
        method: Method::GET,
        path: "/lanyard/v1/clock",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, |call| Ok(clock::read_clock(call))),
    },
    ServiceOperation {
        id: "Clock_Change",
        method: Method::POST,
        path: "/lanyard/v1/clock",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, clock::change_clock),
    },
    ServiceOperation {
        id: "TokenPolicy_Put",
        method: Method::PUT,
        path: "/lanyard/v1/tokens",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, mutations::set_token_policy),
    },
    ServiceOperation {
        id: "Faults_List",
        method: Method::GET,
        path: "/lanyard/v1/faults",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, |call| Ok(list_fault_rules(call))),
    },
    ServiceOperation {
        id: "Faults_Add",
        method: Method::POST,
        path: "/lanyard/v1/faults",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, add_fault_rule),
    },
    ServiceOperation {
        id: "Faults_Clear",
        method: Method::DELETE,
        path: "/lanyard/v1/faults",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, |call| Ok(clear_fault_rules(call))),
    },
    ServiceOperation {
        id: "Faults_Remove",
        method: Method::DELETE,
        path: "/lanyard/v1/faults/{name}",
        support: OperationSupport::Full,
        handler: |call| require_control_header(call, remove_fault_rule),
    },
];

fn require_control_header(
    call: &mut OperationContext<'_>,
    handler: fn(&mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply>,
) -> Result<ServiceReply, ServiceReply> {
    if call.request.header(CONTROL_HEADER) == Some("1") {
        return handler(call);
    }
    Err(control_error(
        StatusCode::FORBIDDEN,
        "HeaderMissing",
        "The request needs the header `x-lanyard-control: 1`, which web pages cannot send.",
    ))
}

/// Converts an error of the engine to a reply of the control API.
fn control_engine_error(error: EngineError<'_>) -> ServiceReply {
    match error {
        EngineError::BodyTooLarge { most } => control_error(
            StatusCode::PAYLOAD_TOO_LARGE,
            "BodyTooLarge",
            &body_too_large_message(most),
        ),
        other => management_error_reply(other),
    }
}

fn control_error(status: StatusCode, code: &str, message: &str) -> ServiceReply {
    ServiceReply::json(status, &json!({ "error": { "code": code, "message": message } }))
        .with_rejection_reason(code)
}

/// Parses the body. The error reply names the invalid field, but contains no value from the body.
fn parse_body<T: DeserializeOwned>(call: &OperationContext<'_>) -> Result<T, ServiceReply> {
    call.request.parse_json_body().map_err(|error| {
        control_error(
            StatusCode::BAD_REQUEST,
            "BodyInvalid",
            &format!("The body is invalid: {error}."),
        )
    })
}

fn get_ca_certificate(call: &OperationContext<'_>) -> ServiceReply {
    let pem = call.authority.certificate_pem().to_owned();
    ServiceReply::empty(StatusCode::OK).with_body("application/x-pem-file", pem)
}

/// `GET request-log?since=N`: the request log entries with a number greater than N.
fn list_request_log(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let since = match call.request.query("since").map(str::parse) {
        None => 0,
        Some(Ok(since)) => since,
        Some(Err(_)) => {
            return Err(control_error(
                StatusCode::BAD_REQUEST,
                "SinceInvalid",
                "`since` is the number of an entry.",
            ));
        }
    };
    let request_log = call.request_log.lock();
    let entries: Vec<_> = request_log.entries_after(since).collect();
    Ok(ServiceReply::json(StatusCode::OK, &json!({ "value": entries })))
}

/// Returns the implemented operations, by service.
fn list_operations(call: &OperationContext<'_>) -> ServiceReply {
    let operations = operation_listing::list_operations(call.services);
    ServiceReply::json(StatusCode::OK, &json!({ "value": operations }))
}

fn list_fault_rules(call: &OperationContext<'_>) -> ServiceReply {
    ServiceReply::json(StatusCode::OK, &json!({ "value": call.azure().faults.rules() }))
}

fn add_fault_rule(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let rule: FaultRule = parse_body(call)?;
    let rule = rule.with_resolved_end(call.now).map_err(|problem| {
        control_error(StatusCode::BAD_REQUEST, "FaultInvalid", &problem.to_string())
    })?;
    call.azure_mut().faults.insert(rule.clone());
    Ok(ServiceReply::json(StatusCode::CREATED, &rule))
}

fn clear_fault_rules(call: &mut OperationContext<'_>) -> ServiceReply {
    call.azure_mut().faults.clear();
    ServiceReply::empty(StatusCode::NO_CONTENT)
}

fn remove_fault_rule(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    if !call.azure().faults.contains(name) {
        let message = format!("No fault rule has the name `{name}`.");
        return Err(control_error(StatusCode::NOT_FOUND, "FaultNotFound", &message));
    }
    call.azure_mut().faults.remove(name);
    Ok(ServiceReply::empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests;
