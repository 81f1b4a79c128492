//! Access to the Kubernetes API: through a kubeconfig or the pod's service account.

use std::path::Path;

use lanyard_kubernetes::ApiAccess;

use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};
use crate::settings::ProcessEnvironment;

/// The given kubeconfig, or the pod's service account; `None` outside of a cluster.
pub(in crate::commands) fn api_access(
    kubeconfig: Option<&Path>,
    environment: &ProcessEnvironment,
) -> Result<Option<ApiAccess>, CommandError> {
    if let Some(path) = kubeconfig {
        return Ok(Some(ApiAccess::Kubeconfig(path.to_owned())));
    }
    let Some(host) = environment.kubernetes_host.clone() else { return Ok(None) };
    let port = environment.kubernetes_port.as_deref().unwrap_or("443").parse();
    let port = port
        .or_invalid("KUBERNETES_SERVICE_PORT is not a port")
        .hint("unset KUBERNETES_SERVICE_HOST, or give --kubeconfig")?;
    let service_account = ApiAccess::SERVICE_ACCOUNT.into();
    Ok(Some(ApiAccess::InCluster { host, port, service_account }))
}
