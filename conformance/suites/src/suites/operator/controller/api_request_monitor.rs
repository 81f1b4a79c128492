//! Records an operator's requests to the API server, and can block them.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task;

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::Resource as _;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::Config;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use lanyard_clock::SystemClock;
use lanyard_kubernetes::KubernetesApi;
use libtest_mimic::Failed;
use parking_lot::Mutex;
use tower::{Layer, Service};

use crate::suites::operator::rendered_chart::RbacPermission;
use crate::waiting::{POLL_INTERVAL, sleep};

/// The requests of an operator, and the switch that blocks them.
#[derive(Clone, Default)]
pub(super) struct ApiRequestMonitor {
    sent_requests: Arc<Mutex<Vec<String>>>,
    answered_requests: Arc<Mutex<Vec<String>>>,
    used_permissions: Arc<Mutex<BTreeSet<RbacPermission>>>,
    refused_permissions: Arc<Mutex<BTreeSet<RbacPermission>>>,
    is_disconnected: Arc<AtomicBool>,
    before_next_write: Arc<Mutex<Option<BeforeWriteHook>>>,
}

/// An action before the first write whose path contains the text.
type BeforeWriteHook = (String, Box<dyn FnOnce() + Send>);

impl ApiRequestMonitor {
    /// The writes that were sent and whose path contains `part`. Blocked writes are not included.
    pub(super) fn writes_to(&self, part: &str) -> Vec<String> {
        let lines = self.sent_requests.lock();
        let is_write = |line: &&String| {
            !line.starts_with("GET ") && !line.ends_with(SelfSubjectAccessReview::URL_PATH_SEGMENT)
        };
        lines.iter().filter(is_write).filter(|line| line.contains(part)).cloned().collect()
    }

    /// Runs `act` before the next write whose path contains `part` is sent.
    pub(super) fn set_before_next_write(&self, part: String, act: impl FnOnce() + Send + 'static) {
        *self.before_next_write.lock() = Some((part, Box::new(act)));
    }

    /// The number of writes without a response whose path contains `part`.
    pub(super) fn unanswered_writes(&self, part: &str) -> usize {
        let answered = self.answered_requests.lock();
        let answers = answered.iter().filter(|line| line.contains(part)).count();
        self.writes_to(part).len().saturating_sub(answers)
    }

    /// The reads whose path contains `part`, including lists.
    pub(super) fn reads_of(&self, part: &str) -> Vec<String> {
        let lines = self.sent_requests.lock();
        let is_read = |line: &&String| line.starts_with("GET ") && line.contains(part);
        lines.iter().filter(is_read).cloned().collect()
    }

    /// Discards the recorded requests.
    pub(super) fn clear(&self) {
        self.sent_requests.lock().clear();
        self.answered_requests.lock().clear();
    }

    /// The permissions that successful requests needed.
    pub(super) fn used_permissions(&self) -> BTreeSet<RbacPermission> {
        self.used_permissions.lock().clone()
    }

    /// The permissions that forbidden requests needed.
    pub(super) fn refused_permissions(&self) -> BTreeSet<RbacPermission> {
        self.refused_permissions.lock().clone()
    }

    /// Blocks or unblocks requests. Blocked requests get no response.
    pub(super) fn set_disconnected(&self, cut: bool) {
        self.is_disconnected.store(cut, Ordering::SeqCst);
    }

    /// Creates a client whose requests are recorded.
    pub(super) async fn connect(&self, kubeconfig: &Path) -> Result<KubernetesApi, Failed> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        (config.proxy_url, config.default_retry) = (None, false);
        config.read_timeout = None;
        let client = ClientBuilder::try_from(config)?.with_layer(self).build();
        Ok(KubernetesApi::from_client(client, SystemClock::shared()))
    }
}

impl<S> Layer<S> for ApiRequestMonitor {
    type Service = MonitoredService<S>;

    fn layer(&self, service: S) -> MonitoredService<S> {
        MonitoredService { service, monitor: self.clone() }
    }
}

/// A service that records requests.
#[derive(Clone)]
pub(super) struct MonitoredService<S> {
    service: S,
    monitor: ApiRequestMonitor,
}

impl<S, B> Service<Request<Body>> for MonitoredService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> task::Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let line = format!("{} {}", request.method(), request.uri().path());
        let needed = required_permission(request.method(), request.uri());
        let monitor = self.monitor.clone();
        // The request is sent only when its response future is polled.
        let answer = self.service.call(request);
        Box::pin(async move {
            while monitor.is_disconnected.load(Ordering::SeqCst) {
                sleep(POLL_INTERVAL).await;
            }
            let is_write = !line.starts_with("GET ");
            if is_write {
                let first = monitor
                    .before_next_write
                    .lock()
                    .take_if(|(part, _)| line.contains(part.as_str()));
                if let Some((_, act)) = first {
                    act();
                }
            }
            monitor.sent_requests.lock().push(line.clone());
            let answer = answer.await?;
            if is_write {
                monitor.answered_requests.lock().push(line);
            }
            match needed {
                Some(needed) if answer.status().is_success() => {
                    let proven = proven_permissions(needed, answer.status());
                    monitor.used_permissions.lock().extend(proven);
                }
                Some(needed) if answer.status() == StatusCode::FORBIDDEN => {
                    monitor.refused_permissions.lock().insert(needed);
                }
                _ => {}
            }
            Ok(answer)
        })
    }
}

/// The permission that a request needs; `None` if it concerns no resource.
fn required_permission(method: &Method, uri: &http::Uri) -> Option<RbacPermission> {
    let mut parts = uri.path().trim_matches('/').split('/');
    let group = match parts.next()? {
        "api" => "",
        "apis" => parts.next()?,
        _ => return None,
    };
    let _version = parts.next()?;
    let mut rest: Vec<&str> = parts.collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    let resource = match rest.get(2) {
        Some(part) => format!("{}/{part}", rest.first()?),
        None => (*rest.first()?).to_owned(),
    };
    let is_watch = uri.query().is_some_and(|query| query.contains("watch=true"));
    let verb = match (method.as_str(), rest.len() > 1) {
        ("GET", true) => "get",
        ("GET", false) if is_watch => "watch",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        _ => return None,
    };
    Some((group.to_owned(), resource, verb.to_owned()))
}

/// The permissions that a response proves: an apply of a new object also proves `create`, and a new
/// RoleBinding proves `bind`.
fn proven_permissions(
    (group, resource, verb): RbacPermission,
    status: StatusCode,
) -> Vec<RbacPermission> {
    let mut granted = Vec::new();
    let is_new = status == StatusCode::CREATED;
    if is_new && verb == "patch" {
        granted.push((group.clone(), resource.clone(), "create".to_owned()));
    }
    if is_new && resource == "rolebindings" {
        granted.push((group.clone(), "clusterroles".to_owned(), "bind".to_owned()));
    }
    granted.push((group, resource, verb));
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_permission_matches_the_api_server_rule() {
        let cases = [
            ("GET", "/api/v1/namespaces/a", "/namespaces/get"),
            ("GET", "/api/v1/namespaces?watch=true&x=1", "/namespaces/watch"),
            ("GET", "/api/v1/namespaces/a/secrets", "/secrets/list"),
            ("PATCH", "/api/v1/namespaces/a/secrets/b", "/secrets/patch"),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments/b", "apps/deployments/delete"),
            ("POST", "/api/v1/namespaces/a/events", "/events/create"),
            (
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "authorization.k8s.io/selfsubjectaccessreviews/create",
            ),
            (
                "PATCH",
                "/apis/lanyard.dev/v1alpha1/namespaces/a/hostedclusteridentities/b/status",
                "lanyard.dev/hostedclusteridentities/status/patch",
            ),
        ];
        for (method, uri, expected) in cases {
            let (group, resource, verb) =
                required_permission(&method.parse().unwrap(), &uri.parse().unwrap()).unwrap();
            assert_eq!(format!("{group}/{resource}/{verb}"), expected, "{uri}");
        }
        assert_eq!(required_permission(&Method::GET, &"/version".parse().unwrap()), None);
    }
}
