//! The rule for names of vaults, and the check whether a name is available.

use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, json_body, json_reply};
use lanyard_emulator_arm::providers::require_registered;
use lanyard_emulator_arm::request_scopes::subscription_scope;
use lanyard_emulator_arm::resource_type::{NameEdge, NamingRule};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};

use super::invalid_vault_reply;

const VAULT_NAMES: NamingRule = NamingRule {
    length: (3, 24),
    punctuation: "-",
    lower_case: false,
    first: NameEdge::Letter,
    last: NameEdge::Alphanumeric,
    forbidden: "--",
};

pub(super) fn is_vault_name(name: &str) -> bool {
    VAULT_NAMES.check(name).is_ok()
}

/// Returns Azure's message for an invalid name of a vault.
pub(super) fn invalid_name_message(name: &str) -> String {
    format!(
        "The vault name '{name}' is invalid. A vault's name must be between 3-24 alphanumeric characters. \
         The name must begin with a letter, end with a letter or digit, and not contain consecutive \
         hyphens. Follow this link for more information: \
         https://go.microsoft.com/fwlink/?linkid=2147742"
    )
}

/// `POST checkNameAvailability`.
pub(super) fn check_vault_name(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    authorize_call(
        call,
        "Microsoft.KeyVault/checkNameAvailability/read",
        &subscription_scope(call)?,
    )?;
    require_registered(call, "Microsoft.KeyVault")?;
    let name = requested_name(call)?;
    let host = call.endpoint.cloud.vault_host_of_text(&name);
    let vaults = &call.azure().vaults;
    let is_taken =
        vaults.vault_at_host(&host).is_some() || vaults.deleted_vault(&host, call.now).is_some();
    Ok(availability_reply(call, &name, is_taken))
}

/// `POST checkMhsmNameAvailability`. No name of a managed HSM is taken.
pub(super) fn check_managed_hsm_name(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    authorize_call(
        call,
        "Microsoft.KeyVault/checkMhsmNameAvailability/read",
        &subscription_scope(call)?,
    )?;
    let name = requested_name(call)?;
    Ok(availability_reply(call, &name, false))
}

fn requested_name(call: &OperationContext<'_>) -> Result<String, ServiceReply> {
    let body = json_body(call)?;
    let name = body.get("name").and_then(Value::as_str).map(str::to_owned);
    name.ok_or_else(|| invalid_vault_reply("The parameter name is not specified."))
}

fn availability_reply(call: &OperationContext<'_>, name: &str, is_taken: bool) -> ServiceReply {
    let wire = if !is_vault_name(name) {
        json!({
            "nameAvailable": false,
            "reason": "AccountNameInvalid",
            "message": invalid_name_message(name),
        })
    } else if is_taken {
        json!({
            "nameAvailable": false,
            "reason": "AlreadyExists",
            "message": format!("The name '{name}' is already in use."),
        })
    } else {
        json!({ "nameAvailable": true })
    };
    json_reply(call, StatusCode::OK, &wire)
}
