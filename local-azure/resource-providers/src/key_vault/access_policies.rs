//! Access policies of vaults: their rules, and the operations that add, replace and remove them.

use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, json_body, json_reply};
use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::request_scopes::{parent_scope, path_scope};
use lanyard_emulator_arm::resource_reads::find_resource;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::vault::{AccessPolicy, AccessPolicyPermissions};
use lanyard_vocabulary::EntraTenantId;
use serde_json::{Value, json};

use super::invalid_vault_reply;

/// The maximum number of access policies of a vault.
const MAX_POLICIES: usize = 1024;

/// The permissions that exist for secrets, keys and certificates.
const COMMON: [&str; 6] = ["all", "get", "list", "delete", "recover", "purge"];
const SECRETS: [&str; 3] = ["set", "backup", "restore"];
const KEYS: [&str; 15] = [
    "encrypt",
    "decrypt",
    "wrapKey",
    "unwrapKey",
    "sign",
    "verify",
    "create",
    "update",
    "import",
    "backup",
    "restore",
    "release",
    "rotate",
    "getrotationpolicy",
    "setrotationpolicy",
];
const CERTIFICATES: [&str; 11] = [
    "create",
    "import",
    "update",
    "backup",
    "restore",
    "managecontacts",
    "getissuers",
    "listissuers",
    "setissuers",
    "deleteissuers",
    "manageissuers",
];
const STORAGE: [&str; 9] = [
    "set",
    "update",
    "regeneratekey",
    "backup",
    "restore",
    "setsas",
    "listsas",
    "getsas",
    "deletesas",
];

/// Parses the access policies of a vault that belongs to `tenant`.
pub(super) fn parse_access_policies(
    given: &Value,
    tenant: &EntraTenantId,
) -> Result<Vec<AccessPolicy>, ServiceReply> {
    let invalid = |problem: String| {
        invalid_vault_reply(format!(
            "An invalid value was provided for 'accessPolicies': {problem}."
        ))
    };
    let policies: Vec<AccessPolicy> =
        serde_json::from_value(given.clone()).map_err(|error| invalid(error.to_string()))?;
    if policies.len() > MAX_POLICIES {
        return Err(invalid(format!("a vault has at most {MAX_POLICIES} policies")));
    }
    for policy in &policies {
        if policy.tenant_id != *tenant {
            return Err(invalid(format!(
                "the tenant '{}' of a policy is not the tenant '{tenant}' of the vault",
                policy.tenant_id
            )));
        }
        if let Some(permission) = unknown_permission(&policy.permissions) {
            return Err(invalid(format!("the permission '{permission}' is not known")));
        }
    }
    Ok(policies)
}

fn unknown_permission(permissions: &AccessPolicyPermissions) -> Option<&str> {
    let lists: [(&Vec<String>, &[&str]); 4] = [
        (&permissions.secrets, &SECRETS),
        (&permissions.keys, &KEYS),
        (&permissions.certificates, &CERTIFICATES),
        (&permissions.storage, &STORAGE),
    ];
    lists.into_iter().find_map(|(given, known)| {
        given.iter().map(String::as_str).find(|permission| {
            !COMMON.iter().chain(known).any(|known| known.eq_ignore_ascii_case(permission))
        })
    })
}

/// What a request does with the access policies in its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessPolicyUpdate {
    /// Adds the permissions to those that the principal has.
    Add,
    /// Replaces the permissions of the principal.
    Replace,
    /// Removes the permissions from those that the principal has.
    Remove,
}

/// `PUT accessPolicies/{add|replace|remove}`.
pub(super) fn update_access_policies(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let path = path_scope(call)?;
    let id = parent_scope(&path)?;
    authorize_call(call, "Microsoft.KeyVault/vaults/accessPolicies/write", &id)?;
    let update = match call.path_parameter("operation") {
        name if name.eq_ignore_ascii_case("add") => AccessPolicyUpdate::Add,
        name if name.eq_ignore_ascii_case("replace") => AccessPolicyUpdate::Replace,
        name if name.eq_ignore_ascii_case("remove") => AccessPolicyUpdate::Remove,
        name => {
            let message = format!("The operation '{name}' is none of add, replace and remove.");
            return Err(bad_request("BadRequest", message));
        }
    };
    let mut resource = find_resource(call, &id)?.clone();
    let body = json_body(call)?;
    let given = body.pointer("/properties/accessPolicies").unwrap_or(&Value::Null);
    let Some(vault) = call.azure().vaults.vault_of_resource(&id) else {
        return Err(invalid_vault_reply("The vault has no data plane."));
    };
    let given = parse_access_policies(given, &vault.settings.tenant)?;
    let mut policies = vault.settings.access_policies.clone();
    for policy in given {
        update.apply(&mut policies, policy);
    }
    if policies.len() > MAX_POLICIES {
        let message = format!("A vault has at most {MAX_POLICIES} access policies.");
        return Err(invalid_vault_reply(message));
    }
    let wire = json!({
        "id": format!("{id}/accessPolicies/"),
        "type": "Microsoft.KeyVault/vaults/accessPolicies",
        "properties": { "accessPolicies": policies },
    });
    if let Some(Value::Object(properties)) = resource.body.get_mut("properties") {
        properties.insert("accessPolicies".to_owned(), json!(policies));
    }
    resource.changed = call.now;
    let azure = call.azure_mut();
    azure.resources.upsert(resource);
    if let Some(vault) = azure.vaults.vault_of_resource_mut(&id) {
        vault.settings.access_policies = policies;
    }
    Ok(json_reply(call, StatusCode::OK, &wire))
}

impl AccessPolicyUpdate {
    fn apply(self, policies: &mut Vec<AccessPolicy>, given: AccessPolicy) {
        let known = policies.iter_mut().find(|known| {
            known.object_id == given.object_id && known.application_id == given.application_id
        });
        match (self, known) {
            (Self::Add, Some(known)) => {
                for (stored, added) in known.permissions.pair_with(given.permissions) {
                    for permission in added {
                        if !contains_permission(stored, &permission) {
                            stored.push(permission);
                        }
                    }
                }
            }
            (Self::Replace, Some(known)) => *known = given,
            (Self::Remove, Some(known)) => {
                for (stored, removed) in known.permissions.pair_with(given.permissions) {
                    stored.retain(|permission| !contains_permission(&removed, permission));
                }
                policies.retain(|policy| policy.permissions != AccessPolicyPermissions::default());
            }
            (Self::Remove, None) => {}
            (Self::Add | Self::Replace, None) => policies.push(given),
        }
    }
}

fn contains_permission(permissions: &[String], permission: &str) -> bool {
    permissions.iter().any(|known| known.eq_ignore_ascii_case(permission))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(object: u128, secrets: &[&str]) -> AccessPolicy {
        let tenant: EntraTenantId = "11111111-1111-4111-8111-111111111111".parse().unwrap();
        let secrets = secrets.iter().map(|text| (*text).to_owned()).collect();
        let permissions = AccessPolicyPermissions { secrets, ..Default::default() };
        AccessPolicy {
            tenant_id: tenant,
            object_id: uuid::Uuid::from_u128(object),
            application_id: None,
            permissions,
        }
    }

    #[test]
    fn policies_are_added_replaced_and_removed_by_principal() {
        use AccessPolicyUpdate as Update;
        type Policies<'a> = &'a [(u128, &'a [&'a str])];
        let cases: [(Update, u128, &[&str], Policies<'_>); 6] = [
            (Update::Add, 1, &["list", "GET"], &[(1, &["get", "list"])]),
            (Update::Add, 2, &["set"], &[(1, &["get"]), (2, &["set"])]),
            (Update::Replace, 1, &["set"], &[(1, &["set"])]),
            (Update::Replace, 2, &["set"], &[(1, &["get"]), (2, &["set"])]),
            (Update::Remove, 1, &["Get"], &[]),
            (Update::Remove, 2, &["get"], &[(1, &["get"])]),
        ];
        for (update, object, given, expected) in cases {
            let mut policies = vec![policy(1, &["get"])];
            update.apply(&mut policies, policy(object, given));
            let expected: Vec<_> =
                expected.iter().map(|(object, secrets)| policy(*object, secrets)).collect();
            assert_eq!(policies, expected, "{update:?} {object}");
        }
    }

    #[test]
    fn unknown_permissions_and_foreign_tenants_are_rejected() {
        let tenant: EntraTenantId = "11111111-1111-4111-8111-111111111111".parse().unwrap();
        let given = |tenant: &str, permissions: Value| {
            json!([{
                "tenantId": tenant,
                "objectId": "22222222-2222-4222-8222-222222222222",
                "permissions": permissions,
            }])
        };
        let parse = |value: &Value| parse_access_policies(value, &tenant);
        let good =
            json!({ "keys": ["WrapKey", "all"], "certificates": null, "storage": ["getsas"] });
        assert_eq!(parse(&given(tenant.as_str(), good.clone())).unwrap().len(), 1);
        let foreign = given("33333333-3333-4333-8333-333333333333", good);
        let bad = [
            foreign,
            given(tenant.as_str(), json!({ "secrets": ["encrypt"] })),
            given(tenant.as_str(), json!({ "keys": "get" })),
            json!({}),
            Value::Null,
        ];
        for value in bad {
            assert!(parse(&value).is_err(), "{value}");
        }
    }
}
