//! Hints for common Entra error codes.
//!
//! Source: Microsoft's list of AADSTS codes, and the causes that the issue trackers of the Azure SDKs, of
//! azure-workload-identity and of kubelogin report.

/// The hint for an AADSTS code.
pub(crate) fn code_hint(code: u32) -> Option<&'static str> {
    HINTS.iter().find(|(codes, _)| codes.contains(&code)).map(|(_, hint)| *hint)
}

/// The hint for an error without a known code.
pub(crate) fn error_hint(error: Option<&str>, status: u16) -> Option<&'static str> {
    match (error, status) {
        (_, 429) => Some(
            "the application is throttled: wait as long as Retry-After says, and look for \
             processes that ask for tokens without caching them",
        ),
        (Some("invalid_client"), _) => Some(
            "Entra does not accept the credential: check that its certificate or federated \
             credential belongs to this client id in this tenant",
        ),
        (Some("unauthorized_client"), _) => {
            Some("check the client id, the tenant and the cloud: this tenant does not know it")
        }
        (Some("invalid_scope" | "invalid_resource"), _) => {
            Some("ask for <audience>/.default of a service that exists in this cloud")
        }
        (Some("temporarily_unavailable"), _) | (_, 500..=599) => {
            Some("the service or a proxy in front of it failed: the request will be retried")
        }
        (_, 407) => Some("the proxy wants to be authenticated: check HTTPS_PROXY"),
        (_, 300..=399) => {
            Some("redirects are not followed: check the authority's URL, and proxies before it")
        }
        _ => None,
    }
}

const HINTS: &[(&[u32], &str)] = &[
    (
        &[700_027],
        "Entra does not know the certificate's key: send the certificate chain (x5c), and check \
         that the certificate belongs to this client id and has not been replaced",
    ),
    (
        &[700_024],
        "the assertion is outside its time range: check this host's clock, and the age of the \
         service account token where one is used",
    ),
    (
        &[700_023],
        "the assertion's audience is not this authority's token endpoint: compare the credential \
         file's authentication_endpoint with the login host of the cloud that was asked (for \
         example https://login.microsoftonline.com/ in the public cloud), and look for a proxy or \
         an alias between the two",
    ),
    (&[1_000_502], "the certificate is outside its validity: rotate it"),
    (&[7_000_214], "the certificate was revoked: rotate it"),
    (
        &[7_000_215, 7_000_222],
        "the application's secret or key is wrong or has expired: renew it in Entra",
    ),
    (
        &[700_016],
        "this tenant has no such application: check the client id, the tenant and the cloud",
    ),
    (&[7_000_112], "the application is disabled: enable it in Entra"),
    (
        &[90_002],
        "there is no such tenant in this cloud: check the tenant id and the authority host",
    ),
    (&[50_034], "the account is not in this directory: check the tenant"),
    (
        &[500_011],
        "this tenant has no service principal for the resource: check the audience and the cloud",
    ),
    (&[70_011, 1_002_012], "the scope must be <audience>/.default"),
    (
        &[70_021],
        "no federated credential of the identity matches the token: compare issuer, subject and \
         audience letter by letter; a new one takes some minutes to work",
    ),
    (
        &[700_211],
        "no federated credential of the identity has the token's issuer: compare it letter by \
         letter, with the slash at its end; a new one takes some minutes to work",
    ),
    (
        &[700_212],
        "no federated credential of the identity has the token's audience: it is \
         api://AzureADTokenExchange unless chosen otherwise; a new one takes some minutes to work",
    ),
    (
        &[700_213],
        "no federated credential of the identity has the token's subject: it is \
         system:serviceaccount:<namespace>:<name>; a new one takes some minutes to work",
    ),
    (
        &[7_002_137, 7_002_138],
        "the token's subject differs from the federated credential in case or form: they are \
         compared letter by letter",
    ),
    (
        &[90_061],
        "Entra could not fetch the issuer's documents: they must be public at \
         <issuer>/.well-known/openid-configuration",
    ),
    (&[53_003], "conditional access blocks the identity: contact the tenant's administrator"),
    (&[50_196], "the same request came too often: look for a caller in a loop"),
    (&[90_033], "Entra has a transient error: the request will be retried"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_error_codes_have_a_hint() {
        for code in [
            700_027, 700_024, 700_023, 1_000_502, 7_000_214, 7_000_215, 7_000_222, 700_016,
            7_000_112, 90_002, 50_034, 500_011, 70_011, 1_002_012, 70_021, 700_211, 700_212,
            700_213, 7_002_137, 7_002_138, 90_061, 53_003, 50_196, 90_033,
        ] {
            assert!(code_hint(code).is_some(), "{code}");
        }
        assert_eq!(code_hint(1), None);
    }

    #[test]
    fn error_codes_are_listed_once() {
        let mut codes: Vec<u32> = HINTS.iter().flat_map(|(codes, _)| *codes).copied().collect();
        let all = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all);
    }
}
