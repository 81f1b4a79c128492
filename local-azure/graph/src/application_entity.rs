//! Applications as resources of Microsoft Graph: their properties and their JSON.

use lanyard_emulator_state::directory::{Application, EntraDirectory, Tenant};
use serde_json::{Map, Value, json};

use super::credential_json::{key_credentials_json, password_credentials_json};
use super::entity::{GraphEntity, time_text};
use super::filter::{FilterTarget, FilterValue, FilterableProperty};
use super::schema::{GraphProperty, PropertyKind, properties, with_defaults};

/// The name of the type in messages.
pub(super) const APPLICATION: &str = "Application";

const API: &[GraphProperty] = &[
    GraphProperty::writable("acceptMappedClaims", PropertyKind::Boolean),
    GraphProperty::writable("knownClientApplications", PropertyKind::TextList),
    GraphProperty::writable("requestedAccessTokenVersion", PropertyKind::Integer),
    GraphProperty::writable("oauth2PermissionScopes", PropertyKind::ObjectList),
    GraphProperty::writable("preAuthorizedApplications", PropertyKind::ObjectList),
];

/// `info` of applications and service principals.
pub(super) const INFORMATIONAL_URLS: &[GraphProperty] = &[
    GraphProperty::read_only("logoUrl", PropertyKind::Text),
    GraphProperty::writable("marketingUrl", PropertyKind::Text),
    GraphProperty::writable("privacyStatementUrl", PropertyKind::Text),
    GraphProperty::writable("supportUrl", PropertyKind::Text),
    GraphProperty::writable("termsOfServiceUrl", PropertyKind::Text),
];

const PARENTAL_CONTROL: &[GraphProperty] = &[
    GraphProperty::writable("countriesBlockedForMinors", PropertyKind::TextList),
    GraphProperty::writable("legalAgeGroupRule", PropertyKind::TextOr("Allow")),
];

const REDIRECT_URIS: &[GraphProperty] =
    &[GraphProperty::writable("redirectUris", PropertyKind::TextList)];

/// `verifiedPublisher` of applications and service principals.
pub(super) const VERIFIED_PUBLISHER: &[GraphProperty] = &[
    GraphProperty::read_only("displayName", PropertyKind::Text),
    GraphProperty::read_only("verifiedPublisherId", PropertyKind::Text),
    GraphProperty::read_only("addedDateTime", PropertyKind::Text),
];

const IMPLICIT_GRANT: &[GraphProperty] = &[
    GraphProperty::writable("enableAccessTokenIssuance", PropertyKind::BooleanOr(false)),
    GraphProperty::writable("enableIdTokenIssuance", PropertyKind::BooleanOr(false)),
];

const WEB: &[GraphProperty] = &[
    GraphProperty::writable("homePageUrl", PropertyKind::Text),
    GraphProperty::writable("logoutUrl", PropertyKind::Text),
    GraphProperty::writable("redirectUris", PropertyKind::TextList),
    GraphProperty::writable("redirectUriSettings", PropertyKind::ObjectList),
    GraphProperty::writable("implicitGrantSettings", PropertyKind::Structure(IMPLICIT_GRANT)),
];

const AUDIENCES: &[&str] = &[
    "AzureADMyOrg",
    "AzureADMultipleOrgs",
    "AzureADandPersonalMicrosoftAccount",
    "PersonalMicrosoftAccount",
];

/// The properties of an application.
pub(super) const APPLICATION_PROPERTIES: &[GraphProperty] = &[
    GraphProperty::read_only("id", PropertyKind::Text),
    GraphProperty::read_only("deletedDateTime", PropertyKind::Text),
    GraphProperty::read_only("appId", PropertyKind::Text),
    GraphProperty::read_only("applicationTemplateId", PropertyKind::Text),
    GraphProperty::read_only("disabledByMicrosoftStatus", PropertyKind::Text),
    GraphProperty::read_only("createdDateTime", PropertyKind::Text),
    GraphProperty::managed("displayName", PropertyKind::Text),
    GraphProperty::writable("description", PropertyKind::Text),
    GraphProperty::writable("groupMembershipClaims", PropertyKind::Text),
    GraphProperty::writable("identifierUris", PropertyKind::TextList),
    GraphProperty::writable("isDeviceOnlyAuthSupported", PropertyKind::Boolean),
    GraphProperty::writable("isFallbackPublicClient", PropertyKind::Boolean),
    GraphProperty::writable("nativeAuthenticationApisEnabled", PropertyKind::Text),
    GraphProperty::writable("notes", PropertyKind::Text),
    GraphProperty::writable("oauth2RequirePostResponse", PropertyKind::BooleanOr(false))
        .only_on_select(),
    GraphProperty::read_only("publisherDomain", PropertyKind::Text),
    GraphProperty::writable("serviceManagementReference", PropertyKind::Text),
    GraphProperty::writable("signInAudience", PropertyKind::OneOf(AUDIENCES)),
    GraphProperty::writable("tags", PropertyKind::TextList),
    GraphProperty::writable("tokenEncryptionKeyId", PropertyKind::Text),
    GraphProperty::create_only("uniqueName", PropertyKind::Text),
    GraphProperty::writable("samlMetadataUrl", PropertyKind::Text),
    GraphProperty::writable("defaultRedirectUri", PropertyKind::Text),
    GraphProperty::read_only("certification", PropertyKind::Object),
    GraphProperty::writable("optionalClaims", PropertyKind::Object),
    GraphProperty::writable("servicePrincipalLockConfiguration", PropertyKind::Object),
    GraphProperty::writable("requestSignatureVerification", PropertyKind::Object),
    GraphProperty::writable("authenticationBehaviors", PropertyKind::Object).only_on_select(),
    GraphProperty::writable("addIns", PropertyKind::ObjectList),
    GraphProperty::writable("api", PropertyKind::Structure(API)),
    GraphProperty::writable("appRoles", PropertyKind::ObjectList),
    GraphProperty::writable("info", PropertyKind::Structure(INFORMATIONAL_URLS)),
    GraphProperty::managed("keyCredentials", PropertyKind::ObjectList),
    GraphProperty::writable("parentalControlSettings", PropertyKind::Structure(PARENTAL_CONTROL)),
    GraphProperty::managed("passwordCredentials", PropertyKind::ObjectList),
    GraphProperty::writable("publicClient", PropertyKind::Structure(REDIRECT_URIS)),
    GraphProperty::writable("requiredResourceAccess", PropertyKind::ObjectList),
    GraphProperty::read_only("verifiedPublisher", PropertyKind::Structure(VERIFIED_PUBLISHER)),
    GraphProperty::writable("web", PropertyKind::Structure(WEB)),
    GraphProperty::writable("spa", PropertyKind::Structure(REDIRECT_URIS)),
];

impl GraphEntity for Application {
    const TARGET: FilterTarget = FilterTarget {
        resource: APPLICATION,
        type_name: "application",
        properties: &[
            FilterableProperty::text("id"),
            FilterableProperty::text("appId"),
            FilterableProperty::text("displayName"),
            FilterableProperty::text("description").advanced(),
            FilterableProperty::text("signInAudience"),
            FilterableProperty::text("publisherDomain"),
            FilterableProperty::text("uniqueName"),
            FilterableProperty::text("serviceManagementReference"),
            FilterableProperty::time("createdDateTime"),
            FilterableProperty::text_list("identifierUris"),
            FilterableProperty::text_list("tags"),
        ],
    };
    const PROPERTIES: &'static [GraphProperty] = APPLICATION_PROPERTIES;
    const SORTABLE: &'static [&'static str] = &["displayName", "appId"];

    fn id(&self) -> String {
        self.object_id.to_string()
    }

    fn filter_value<'a>(
        &'a self,
        directory: &'a EntraDirectory,
        property: &str,
    ) -> FilterValue<'a> {
        match property {
            "appId" => FilterValue::text(self.client_id.to_string()),
            "displayName" => FilterValue::text(&self.display_name),
            "createdDateTime" => FilterValue::Time(self.created),
            "publisherDomain" => FilterValue::text(publisher_domain(directory, self)),
            other => FilterValue::stored(&self.properties, APPLICATION_PROPERTIES, other),
        }
    }

    fn to_json(&self, directory: &EntraDirectory) -> Map<String, Value> {
        let mut json = with_defaults(APPLICATION_PROPERTIES, &self.properties);
        json.extend(properties([
            ("id", json!(self.object_id)),
            ("appId", json!(self.client_id)),
            ("createdDateTime", json!(time_text(self.created))),
            ("displayName", json!(self.display_name)),
            ("publisherDomain", json!(publisher_domain(directory, self))),
            ("keyCredentials", key_credentials_json(&self.keys)),
            ("passwordCredentials", password_credentials_json(&self.passwords)),
        ]));
        json
    }

    fn expand(&self, directory: &EntraDirectory, relationship: &str) -> Option<Value> {
        match relationship {
            "owners" => Some(super::object_json::objects_json(directory, &self.owners)),
            "federatedIdentityCredentials" => {
                Some(super::federated_credentials::credentials_json(self))
            }
            _ => None,
        }
    }
}

fn publisher_domain(directory: &EntraDirectory, application: &Application) -> String {
    let tenant = directory.tenant(application.tenant.as_str());
    tenant.map(Tenant::initial_domain).unwrap_or_default()
}
