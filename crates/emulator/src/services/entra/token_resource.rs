//! The resources of tokens, and how the two endpoint versions name them.

use lanyard_vocabulary::Cloud;

use super::error::{
    PARAMETER_MISSING, RESOURCE_UNKNOWN, SCOPE_INVALID, SCOPE_NOT_DEFAULT, TokenServiceError,
};
use crate::hosts;

/// Scopes that MSAL appends and that do not name a resource.
const OPENID_SCOPES: [&str; 4] = ["openid", "offline_access", "profile", "email"];
const DEFAULT: &str = "/.default";

/// Parses the resource of a `scope` (version 2.0): exactly one, with `/.default`.
///
/// `https://management.core.windows.net//.default` names the resource with its trailing slash.
pub(crate) fn parse_scope(scope: Option<&str>, cloud: Cloud) -> Result<&str, TokenServiceError> {
    let scope = scope.ok_or_else(|| missing_parameter_error("scope"))?;
    let mut named = scope.split_whitespace().filter(|scope| !OPENID_SCOPES.contains(scope));
    let (Some(one), None) = (named.next(), named.next()) else {
        return Err(SCOPE_INVALID.with_description(
            "The provided value for the input parameter 'scope' is not valid: it must name \
             exactly one resource.",
        ));
    };
    let resource = one.strip_suffix(DEFAULT).ok_or_else(|| {
        SCOPE_NOT_DEFAULT.with_description(format!(
            "The provided value for scope {one} is not valid. Client credential flows must have a \
             scope value with /.default suffixed to the resource identifier (application ID URI)."
        ))
    })?;
    parse_resource(Some(resource), cloud)
}

/// Parses the `resource` parameter of version 1.0.
pub(crate) fn parse_resource(
    resource: Option<&str>,
    cloud: Cloud,
) -> Result<&str, TokenServiceError> {
    let resource = resource
        .filter(|text| !text.is_empty())
        .ok_or_else(|| missing_parameter_error("resource"))?;
    if is_known_token_resource(cloud, resource) {
        Ok(resource)
    } else {
        Err(RESOURCE_UNKNOWN.with_description(format!(
            "The resource principal named {resource} was not found in the tenant. This can happen \
             if the application has not been installed by the administrator of the tenant, or if \
             the resource belongs to another cloud."
        )))
    }
}

/// The error for a missing parameter.
pub(crate) fn missing_parameter_error(parameter: &str) -> TokenServiceError {
    PARAMETER_MISSING.with_description(format!(
        "The request body must contain the following parameter: '{parameter}'."
    ))
}

/// Whether a resource exists in a cloud, with or without one trailing slash.
pub(crate) fn is_known_token_resource(cloud: Cloud, resource: &str) -> bool {
    let Some(endpoints) = cloud.endpoints() else { return false };
    let name = resource.strip_suffix('/').unwrap_or(resource);
    let Some(host) = name.strip_prefix("https://") else { return false };
    host == endpoints.arm_host
        || name == endpoints.arm_audience
        || host == endpoints.vault_suffix
        || host == endpoints.managed_hsm_suffix
        || host == "storage.azure.com"
        || hosts::is_graph(cloud, host)
        || hosts::is_storage_account(cloud, host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_names_one_resource_and_keeps_its_slash() {
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
            ("https://vault.azure.net", Err(1_002_012)),
            ("https://vault.azure.net/user_impersonation", Err(1_002_012)),
            ("https://vault.azure.cn/.default", Err(500_011)),
            ("https://example.com/.default", Err(500_011)),
            ("http://vault.azure.net/.default", Err(500_011)),
            ("openid", Err(70_011)),
            ("https://vault.azure.net/.default https://management.azure.com/.default", Err(70_011)),
        ];
        for (scope, expected) in cases {
            let found = parse_scope(Some(scope), Cloud::Public).map_err(|r| r.code.number);
            assert_eq!(found, expected, "{scope}");
        }
        assert_eq!(parse_scope(None, Cloud::Public).map_err(|r| r.code.number), Err(900_144));
    }

    #[test]
    fn each_cloud_knows_its_own_resources() {
        for cloud in Cloud::ALL {
            let Some(endpoints) = cloud.endpoints() else { continue };
            for resource in
                [endpoints.arm_url(), endpoints.arm_audience.to_owned(), endpoints.vault_audience()]
            {
                assert!(is_known_token_resource(cloud, &resource), "{cloud}: {resource}");
                assert!(
                    is_known_token_resource(cloud, &format!("{resource}/")),
                    "{cloud}: {resource}/"
                );
            }
        }
        assert!(!is_known_token_resource(Cloud::UsGovernment, "https://vault.azure.net"));
    }
}
