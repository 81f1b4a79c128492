use http::Method;
use lanyard_emulator::testing::start_time;
use lanyard_emulator_core::operations::ServiceOperation;
use lanyard_emulator_state::directory::Group;
use lanyard_emulator_state::vaults::network_rules::VaultNetworkRules;
use lanyard_emulator_state::vaults::vault::EmulatedVault;
use serde_json::{Value, json};

use super::super::vault_fixture::{KeyVaultFixture, expected_error};
use crate::operations::OPERATIONS;

const NULL: Value = Value::Null;
const HOST: &str = "platform-kv.vault.azure.net";

fn change_vault(visit: &KeyVaultFixture, change: impl FnOnce(&mut EmulatedVault)) {
    let vaults = &mut visit.probe.engine.state().azure.vaults;
    let mut vault = vaults.vault_at_host(HOST).unwrap().clone();
    change(&mut vault);
    vaults.insert(vault);
}

/// The permissions of the operations: the data action below `Microsoft.KeyVault/vaults/`, the kind of an access
/// policy, and the permission.
///
/// Reference: the resource provider operations of Microsoft.KeyVault; the permissions that the REST API
/// documents with each operation.
const PERMISSIONS: &str = "
GetSecrets secrets/readMetadata/action secrets list
GetSecretVersions secrets/readMetadata/action secrets list
GetSecret secrets/getSecret/action secrets get
GetSecretVersion secrets/getSecret/action secrets get
SetSecret secrets/setSecret/action secrets set
UpdateSecret secrets/update/action secrets set
UpdateSecretVersion secrets/update/action secrets set
DeleteSecret secrets/delete secrets delete
BackupSecret secrets/backup/action secrets backup
RestoreSecret secrets/restore/action secrets restore
GetDeletedSecrets secrets/readMetadata/action secrets list
GetDeletedSecret secrets/readMetadata/action secrets get
RecoverDeletedSecret secrets/recover/action secrets recover
PurgeDeletedSecret secrets/purge/action secrets purge
GetKeys keys/read keys list
GetKeyVersions keys/read keys list
GetKeyRotationPolicy keyrotationpolicies/read keys getrotationpolicy
UpdateKeyRotationPolicy keyrotationpolicies/write keys setrotationpolicy
GetKey keys/read keys get
GetKeyVersion keys/read keys get
CreateKey keys/create/action keys create
ImportKey keys/import/action keys import
UpdateKey keys/update/action keys update
UpdateKeyLatest keys/update/action keys update
DeleteKey keys/delete keys delete
RotateKey keys/rotate/action keys rotate
BackupKey keys/backup/action keys backup
RestoreKey keys/restore/action keys restore
GetDeletedKeys keys/read keys list
GetDeletedKey keys/read keys get
RecoverDeletedKey keys/recover/action keys recover
PurgeDeletedKey keys/purge/action keys purge
Encrypt keys/encrypt/action keys encrypt
Decrypt keys/decrypt/action keys decrypt
WrapKey keys/wrap/action keys wrapKey
UnwrapKey keys/unwrap/action keys unwrapKey
Sign keys/sign/action keys sign
Verify keys/verify/action keys verify
Release keys/release/action keys release
EncryptLatest keys/encrypt/action keys encrypt
DecryptLatest keys/decrypt/action keys decrypt
WrapKeyLatest keys/wrap/action keys wrapKey
UnwrapKeyLatest keys/unwrap/action keys unwrapKey
SignLatest keys/sign/action keys sign
VerifyLatest keys/verify/action keys verify
ReleaseLatest keys/release/action keys release
GetCertificateIssuers certificatecas/read certificates listissuers
GetCertificateIssuer certificatecas/read certificates getissuers
SetCertificateIssuer certificatecas/write certificates setissuers
UpdateCertificateIssuer certificatecas/write certificates setissuers
DeleteCertificateIssuer certificatecas/delete certificates deleteissuers
GetCertificateContacts certificatecontacts/write certificates managecontacts
SetCertificateContacts certificatecontacts/write certificates managecontacts
DeleteCertificateContacts certificatecontacts/write certificates managecontacts
GetCertificates certificates/read certificates list
GetCertificateVersions certificates/read certificates list
GetCertificatePolicy certificates/read certificates get
UpdateCertificatePolicy certificates/update/action certificates update
GetCertificateOperation certificates/read certificates get
UpdateCertificateOperation certificates/update/action certificates update
DeleteCertificateOperation certificates/update/action certificates update
MergeCertificate certificates/create/action certificates create
CreateCertificate certificates/create/action certificates create
ImportCertificate certificates/import/action certificates import
GetCertificate certificates/read certificates get
GetCertificateVersion certificates/read certificates get
UpdateCertificate certificates/update/action certificates update
UpdateCertificateLatest certificates/update/action certificates update
DeleteCertificate certificates/delete certificates delete
BackupCertificate certificates/backup/action certificates backup
RestoreCertificate certificates/restore/action certificates restore
GetDeletedCertificates certificates/read certificates list
GetDeletedCertificate certificates/read certificates get
RecoverDeletedCertificate certificates/recover/action certificates recover
PurgeDeletedCertificate certificates/purge/action certificates purge
";

fn path_of(operation: &ServiceOperation) -> String {
    let path = operation.path.replace("{name}", "object").replace("{issuer}", "issuer");
    path.replace("{version}", "0123456789abcdef0123456789abcdef")
}

#[test]
fn every_operation_needs_its_permission_in_both_models() {
    let visit = KeyVaultFixture::as_administrator();
    let client = visit.client(lanyard_vocabulary::Component::Disk);
    let object = visit
        .probe
        .engine
        .state()
        .azure
        .registry
        .component_identity(lanyard_vocabulary::Component::Disk)
        .unwrap()
        .object_id;
    let mut rows: Vec<[&str; 4]> = PERMISSIONS
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.split(' ').collect::<Vec<_>>().try_into().unwrap())
        .collect();
    for operation in OPERATIONS.iter().copied().flatten() {
        let at = rows.iter().position(|row| row[0] == operation.id);
        let [id, action, kind, permission] =
            rows.remove(at.unwrap_or_else(|| panic!("{}", operation.id)));
        let ask = || {
            let method = operation.method.as_str();
            visit.send_request(client, method, &path_of(operation), "{}")
        };
        change_vault(&visit, |vault| vault.settings.rbac = true);
        let denied = ask();
        let message = String::from_utf8_lossy(&denied.body).into_owned();
        assert_eq!(denied.status.as_u16(), 403, "{id}");
        assert!(
            message.contains(&format!("Action: 'Microsoft.KeyVault/vaults/{action}'")),
            "{id}: {message}"
        );

        let with_permissions = |permissions: &Value| {
            let policy = json!({
                "tenantId": "11111111-1111-4111-8111-111111111111",
                "objectId": object,
                "permissions": permissions,
            });
            change_vault(&visit, |vault| {
                vault.settings.rbac = false;
                vault.settings.access_policies = vec![serde_json::from_value(policy).unwrap()];
            });
            ask().status.as_u16() != 403
        };
        assert!(with_permissions(&json!({ kind: [permission.to_uppercase()] })), "{id}");
        assert_eq!(with_permissions(&json!({ kind: ["all"] })), permission != "purge", "{id}");
        let others = ["secrets", "keys", "certificates"].map(|other| {
            let known = PERMISSIONS.lines().filter_map(|line| line.split(' ').nth(3));
            let others: Vec<_> = known.filter(|it| other != kind || *it != permission).collect();
            (other.to_owned(), json!(others))
        });
        let others = Value::Object(others.into_iter().collect());
        assert!(!with_permissions(&others), "{id} needs {kind} {permission}");
    }
    assert!(rows.is_empty(), "{rows:?}");
}

#[test]
fn access_policies_may_require_an_application_and_apply_to_groups() {
    let visit = KeyVaultFixture::as_administrator();
    let (object, tenant) = {
        let state = visit.probe.engine.state();
        let directory = &state.azure.directory;
        let principal = directory.service_principal_by_client_id(visit.test_client).unwrap();
        (principal.object_id, principal.tenant.clone())
    };
    let group = uuid::Uuid::from_u128(0x6e);
    visit.probe.engine.state().azure.directory.insert_group(Group {
        object_id: group,
        tenant: tenant.clone(),
        display_name: "vault users".to_owned(),
        created: start_time(),
        members: [object].into(),
        owners: Vec::new(),
        properties: serde_json::Map::new(),
    });
    let status = |object: uuid::Uuid, application: Option<&str>| {
        let policy = json!({
            "tenantId": tenant,
            "objectId": object,
            "applicationId": application,
            "permissions": { "secrets": ["list"] },
        });
        change_vault(&visit, |vault| {
            vault.settings.rbac = false;
            vault.settings.access_policies = vec![serde_json::from_value(policy).unwrap()];
        });
        visit.ask("GET", "/secrets", &NULL).0
    };
    assert_eq!(status(object, None), 200);
    assert_eq!(status(object, Some(&visit.test_client.to_string())), 200);
    assert_eq!(status(object, Some("11111111-2222-4333-8444-555555555555")), 403);
    assert_eq!(status(group, None), 200);
    assert_eq!(status(uuid::Uuid::from_u128(0x6f), None), 403);
}

#[test]
fn the_firewall_precedes_permissions_and_follows_the_token() {
    let visit = KeyVaultFixture::as_administrator();
    let deny = |ip_rules: &[&str], has_public_access| VaultNetworkRules {
        has_public_access,
        denies_by_default: true,
        ip_rules: ip_rules.iter().map(|text| text.parse().unwrap()).collect(),
    };
    // The fixture sends requests from 127.0.0.1.
    let cases = [
        (deny(&[], true), Some("ForbiddenByFirewall")),
        (deny(&["192.0.2.0/24"], true), Some("ForbiddenByFirewall")),
        (deny(&["127.0.0.0/8"], true), None),
        (deny(&["127.0.0.1"], false), Some("ForbiddenByConnection")),
        (VaultNetworkRules::default(), None),
    ];
    for (rules, code) in cases {
        change_vault(&visit, |vault| vault.settings.network = rules.clone());
        let reply = visit.get(visit.test_client, "/secrets");
        assert_eq!(reply.status.as_u16() == 200, code.is_none(), "{rules:?}");
        if let Some(code) = code {
            for client in [visit.test_client, visit.client(lanyard_vocabulary::Component::Disk)] {
                let reply = visit.get(client, "/secrets");
                let found = super::super::vault_fixture::status_and_codes(&reply);
                assert_eq!(found, expected_error(403, "Forbidden", code), "{rules:?}");
            }
            let url = format!("https://{HOST}/secrets?api-version=7.4");
            let anonymous = visit.probe.send_request(
                lanyard_emulator_core::ingress::Ingress::Tunnel,
                &Method::GET,
                &url,
                &[],
                "",
            );
            assert_eq!(anonymous.status.as_u16(), 401);
            assert!(anonymous.header("www-authenticate").is_some());
        }
    }
}

#[test]
fn requests_without_a_known_version_are_rejected() {
    let visit = KeyVaultFixture::as_administrator();
    let message = |query: &str| {
        let (status, reply) = visit.ask("GET", &format!("/secrets?api-version={query}"), &NULL);
        (status, reply["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    for known in ["2016-10-01", "7.4", "7.5", "7.6", "7.6-preview.2", "2025-07-01", "2026-04-01"] {
        assert_eq!(message(known).0, 200, "{known}");
    }
    assert_eq!(message(""), (400, "api-version must be specified".to_owned()));
    let expected = "The specified version (7.7) is not recognized. Consider using the latest supported \
                    version (2026-04-01).";
    assert_eq!(message("7.7"), (400, expected.to_owned()));
    assert_eq!(message("2027-01-01").0, 400);
    let rotate = visit.fail("POST", "/keys/absent/rotate?api-version=7.2", &NULL);
    assert_eq!(rotate, expected_error(400, "BadParameter", ""));
}
