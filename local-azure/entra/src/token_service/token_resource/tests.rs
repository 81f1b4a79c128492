use lanyard_emulator::testing::{
    APP, MSI, TENANT, application_mut, azure_with_test_principals, start_time,
};
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::directory::DirectoryReader;
use lanyard_vocabulary::Cloud;
use serde_json::json;

use super::*;

fn replica(azure: &AzureState) -> DirectoryReplica<'_> {
    azure.directory.replica(DirectoryReader::TokenService, start_time())
}

fn clouds() -> AzureClouds {
    AzureClouds::new(None, 443)
}

fn tenant_id() -> EntraTenantId {
    TENANT.parse().unwrap()
}

/// The resource that an application's scope names, or the code of the error.
fn application_resource(azure: &AzureState, scope: &str) -> Result<String, u32> {
    parse_application_scope(scope)
        .and_then(|identifier| {
            require_token_resource(replica(azure), clouds().public(), &tenant_id(), identifier)
        })
        .map(|resource| resource.audience)
        .map_err(|error| error.code.number)
}

#[test]
fn a_scope_of_an_application_names_one_resource_and_keeps_its_slash() {
    let azure = azure_with_test_principals();
    let cases = [
        ("https://management.azure.com/.default", Ok("https://management.azure.com")),
        (
            "https://management.core.windows.net//.default",
            Ok("https://management.core.windows.net/"),
        ),
        (
            "https://vault.azure.net/.default openid offline_access profile",
            Ok("https://vault.azure.net"),
        ),
        ("https://kv.blob.core.windows.net/.default", Ok("https://kv.blob.core.windows.net")),
        ("https://graph.microsoft.com//.default", Ok("https://graph.microsoft.com/")),
        (
            "6dae42f8-4368-4678-94ff-3960e28e3630/.default",
            Ok("6dae42f8-4368-4678-94ff-3960e28e3630"),
        ),
        ("https://vault.azure.net", Err(1_002_012)),
        ("https://vault.azure.net/user_impersonation", Err(1_002_012)),
        ("User.Read", Err(1_002_012)),
        ("https://vault.azure.cn/.default", Err(500_011)),
        ("https://example.com/.default", Err(500_011)),
        ("http://vault.azure.net/.default", Err(500_011)),
        ("api://unknown/.default", Err(500_011)),
        ("openid", Err(70_011)),
        ("https://vault.azure.net/.default https://management.azure.com/.default", Err(70_011)),
    ];
    for (scope, expected) in cases {
        assert_eq!(application_resource(&azure, scope), expected.map(ToOwned::to_owned), "{scope}");
    }
}

#[test]
fn each_cloud_knows_its_own_resources() {
    let clouds = clouds();
    for cloud in clouds.iter() {
        let Some(endpoints) = cloud.name.endpoints() else { continue };
        for resource in
            [endpoints.arm_url(), endpoints.arm_audience.to_owned(), endpoints.vault_audience()]
        {
            assert!(azure_service_kind(cloud, &resource).is_some(), "{}: {resource}", cloud.name);
            assert!(azure_service_kind(cloud, &format!("{resource}/")).is_some(), "{resource}/");
        }
    }
    let government = clouds.iter().find(|cloud| cloud.name == Cloud::UsGovernment).unwrap();
    assert!(azure_service_kind(government, "https://vault.azure.net").is_none());
}

/// The state with an application that exposes two permissions, one of them disabled.
fn azure_with_api(version: Option<u8>) -> AzureState {
    let mut azure = azure_with_test_principals();
    let properties = json!({
        "identifierUris": ["api://files", "https://files.contoso.test"],
        "groupMembershipClaims": "SecurityGroup",
        "api": {
            "requestedAccessTokenVersion": version,
            "oauth2PermissionScopes": [
                { "value": "Files.Read", "isEnabled": true },
                { "value": "Files.Delete", "isEnabled": false },
            ],
        },
    });
    application_mut(&mut azure, APP).properties = properties.as_object().cloned().unwrap();
    azure
}

#[test]
fn applications_are_resources_by_client_id_and_identifier_uri() {
    let (one, two) = (azure_with_api(None), azure_with_api(Some(2)));
    let default_uri = format!("api://{APP}");
    for identifier in [APP, "api://files", "https://files.contoso.test", &default_uri] {
        let scope = format!("{identifier}/.default");
        assert_eq!(application_resource(&one, &scope), Ok(identifier.to_owned()));
        // Version 2.0 names the application by its client id.
        assert_eq!(application_resource(&two, &scope), Ok(APP.to_owned()), "{identifier}");
    }
    // A managed identity has no application.
    assert_eq!(application_resource(&one, &format!("{MSI}/.default")), Err(500_011));
    let mut disabled = azure_with_api(None);
    lanyard_emulator::testing::principal_mut(&mut disabled, APP).enabled = false;
    assert_eq!(application_resource(&disabled, "api://files/.default"), Err(500_011));
}

/// The permissions and the reply's `scope` for a user, or the code of the error.
fn delegated(azure: &AzureState, scope: &str) -> Result<(String, String), u32> {
    parse_delegated_scope(replica(azure), clouds().public(), &tenant_id(), scope, "User.Read")
        .map(|scopes| (scopes.permissions.join(" "), scopes.reply_scope))
        .map_err(|error| error.code.number)
}

#[test]
fn delegated_scopes_are_those_of_one_resource() {
    let azure = azure_with_api(None);
    let arm = "https://management.core.windows.net/";
    let cases = [
        (
            "https://management.core.windows.net//.default openid profile offline_access",
            Ok((
                "user_impersonation".to_owned(),
                format!("openid profile {arm}/user_impersonation {arm}/.default"),
            )),
        ),
        ("openid profile", Ok(("openid profile".to_owned(), "openid profile".to_owned()))),
        ("User.Read openid", Ok(("User.Read openid".to_owned(), "openid User.Read".to_owned()))),
        (
            "https://graph.microsoft.com/Mail.Read",
            Ok(("Mail.Read".to_owned(), "https://graph.microsoft.com/Mail.Read".to_owned())),
        ),
        (
            "api://files/.default",
            Ok(("Files.Read".to_owned(), "api://files/Files.Read api://files/.default".to_owned())),
        ),
        (
            "api://files/Files.Read",
            Ok(("Files.Read".to_owned(), "api://files/Files.Read".to_owned())),
        ),
        ("api://files/Files.Delete", Err(650_053)),
        ("https://vault.azure.net/read", Err(650_053)),
        ("api://files/.default api://files/Files.Read", Err(70_011)),
        ("User.Read https://vault.azure.net/.default", Err(70_011)),
        ("https://example.com/.default", Err(500_011)),
    ];
    for (scope, expected) in cases {
        assert_eq!(delegated(&azure, scope), expected, "{scope}");
    }
}

#[test]
fn group_claims_depend_on_the_application() {
    let find = |azure: &AzureState, identifier: &str| {
        find_token_resource(replica(azure), clouds().public(), &tenant_id(), identifier).unwrap()
    };
    assert!(find(&azure_with_api(None), "api://files").has_group_claims());
    assert!(!find(&azure_with_api(None), "https://vault.azure.net").has_group_claims());
    let mut without = azure_with_api(None);
    application_mut(&mut without, APP).properties.remove("groupMembershipClaims");
    assert!(!find(&without, "api://files").has_group_claims());
}
