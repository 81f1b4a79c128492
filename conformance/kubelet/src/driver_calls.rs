//! CSI calls, each on a new connection and with the kubelet's deadline.

use std::path::Path;
use std::time::Duration;

use lanyard_clock::Clock;
use lanyard_grpc::channel_to_socket;
use lanyard_grpc::csi::node_client::NodeClient;
use lanyard_grpc::csi::node_service_capability::{Type, rpc};
use lanyard_grpc::csi::{
    NodeGetCapabilitiesRequest, NodeGetInfoRequest, NodePublishVolumeRequest,
    NodeUnpublishVolumeRequest,
};
use lanyard_grpc::registration::registration_client::RegistrationClient;
use lanyard_grpc::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use tonic::{Code, Request, Response, Status};

/// The kubelet's `csiTimeout`.
const CALL_DEADLINE: Duration = Duration::from_mins(2);

/// How long a plugin may take to answer a registration call.
const REGISTRATION_DEADLINE: Duration = Duration::from_secs(10);

pub(crate) async fn fetch_plugin_info(
    clock: &dyn Clock,
    socket: &Path,
) -> Result<PluginInfo, Status> {
    let mut client = RegistrationClient::new(channel_to_socket(socket));
    let request = request_with_deadline(REGISTRATION_DEADLINE, InfoRequest {});
    await_response(clock, REGISTRATION_DEADLINE, client.get_info(request)).await
}

pub(crate) async fn notify_registration(
    clock: &dyn Clock,
    socket: &Path,
    problem: Option<&str>,
) -> Result<(), Status> {
    let mut client = RegistrationClient::new(channel_to_socket(socket));
    let status = RegistrationStatus {
        plugin_registered: problem.is_none(),
        error: problem.unwrap_or_default().to_owned(),
    };
    let request = request_with_deadline(REGISTRATION_DEADLINE, status);
    await_response(clock, REGISTRATION_DEADLINE, client.notify_registration_status(request))
        .await?;
    Ok(())
}

pub(crate) async fn fetch_node_id(clock: &dyn Clock, endpoint: &Path) -> Result<String, Status> {
    let mut client = NodeClient::new(channel_to_socket(endpoint));
    let call = client.node_get_info(request_with_deadline(CALL_DEADLINE, NodeGetInfoRequest {}));
    await_response(clock, CALL_DEADLINE, call).await.map(|answer| answer.node_id)
}

/// Whether the driver has the capability `VOLUME_MOUNT_GROUP`. Like the kubelet, this makes one call for each
/// capability that it checks.
pub(crate) async fn supports_mount_group(
    clock: &dyn Clock,
    endpoint: &Path,
) -> Result<bool, Status> {
    has_capability(clock, endpoint, rpc::Type::SingleNodeMultiWriter).await?;
    has_capability(clock, endpoint, rpc::Type::VolumeMountGroup).await
}

async fn has_capability(
    clock: &dyn Clock,
    endpoint: &Path,
    wanted: rpc::Type,
) -> Result<bool, Status> {
    let mut client = NodeClient::new(channel_to_socket(endpoint));
    let call = client
        .node_get_capabilities(request_with_deadline(CALL_DEADLINE, NodeGetCapabilitiesRequest {}));
    let answer = await_response(clock, CALL_DEADLINE, call).await?;
    let is_wanted = |it: &Type| matches!(it, Type::Rpc(it) if it.r#type() == wanted);
    Ok(answer.capabilities.iter().any(|it| it.r#type.as_ref().is_some_and(is_wanted)))
}

pub(crate) async fn publish_volume(
    clock: &dyn Clock,
    endpoint: &Path,
    request: NodePublishVolumeRequest,
) -> Result<(), Status> {
    let mut client = NodeClient::new(channel_to_socket(endpoint));
    await_response(
        clock,
        CALL_DEADLINE,
        client.node_publish_volume(request_with_deadline(CALL_DEADLINE, request)),
    )
    .await?;
    Ok(())
}

pub(crate) async fn unpublish_volume(
    clock: &dyn Clock,
    endpoint: &Path,
    request: NodeUnpublishVolumeRequest,
) -> Result<(), Status> {
    let mut client = NodeClient::new(channel_to_socket(endpoint));
    await_response(
        clock,
        CALL_DEADLINE,
        client.node_unpublish_volume(request_with_deadline(CALL_DEADLINE, request)),
    )
    .await?;
    Ok(())
}

/// Whether the kubelet treats this code of a publish as final, so that nothing of the volume is left.
pub(crate) const fn is_final_code(code: Code) -> bool {
    !matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted
    )
}

/// Formats a status as pod events show it.
pub(crate) fn describe_status(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}

/// A request that sends its deadline in `grpc-timeout`.
fn request_with_deadline<T>(deadline: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

/// Waits for the response, or returns `DeadlineExceeded` when the deadline passes on `clock`.
async fn await_response<T>(
    clock: &dyn Clock,
    deadline: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    tokio::select! {
        answer = call => answer.map(Response::into_inner),
        () = clock.sleep(deadline) => Err(Status::deadline_exceeded("context deadline exceeded")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_codes_leave_the_volume_state_uncertain() {
        let all = (0..17).map(Code::from_i32);
        let open: Vec<_> = all.filter(|code| !is_final_code(*code)).collect();
        let expected = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::ResourceExhausted,
            Code::Aborted,
            Code::Unavailable,
        ];
        assert_eq!(open, expected);
    }
}
