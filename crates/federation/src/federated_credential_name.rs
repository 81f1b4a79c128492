//! Names of federated credentials of workload identities.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;

/// The name that `azwi`, the tool of azure-workload-identity, gives to the federated credential of a
/// service account: the padded base64url of a SHA-256.
pub fn workload_identity_credential_name(
    namespace: &str,
    service_account: &str,
    issuer: &str,
) -> String {
    let text = format!("{namespace}-{service_account}-{issuer}");
    URL_SAFE.encode(digest(&SHA256, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_azwi() {
        assert_eq!(
            workload_identity_credential_name("", "", ""),
            "2BVrrgxCQ9N0L8Tpd02KzqvgQQJJ1yDIVfmK_Ij_hGw="
        );
        assert_eq!(
            workload_identity_credential_name(
                "oidc",
                "pod-identity-sa",
                "https://test.blob.core.windows.net/oidc-test/"
            ),
            "5Frx_q5PpeP09cXWfkbDVwCOg5IVRmmKE3BUKT4hP4I="
        );
    }
}
