//! Purges of objects that Azure has just deleted and does not know everywhere yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::headers::Headers;
use azure_core::http::{AsyncRawResponse, HttpClient, Request, StatusCode};
use lanyard_clock::ManualClock;
use lanyard_service_principals::{CreatedObjects, Deletion};
use parking_lot::Mutex;

use crate::engine_client::EngineClient;
use crate::environment::Environment;

/// Answers 404 to the first purge of each object.
#[derive(Debug)]
struct LatePurge {
    inner: Arc<EngineClient>,
    purged: Mutex<BTreeSet<String>>,
}

impl LatePurge {
    fn new(environment: &Environment) -> Arc<Self> {
        let inner = EngineClient::new(Arc::clone(&environment.engine));
        Arc::new(Self { inner, purged: Mutex::default() })
    }
}

#[async_trait]
impl HttpClient for LatePurge {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let path = request.url().path();
        let code = [
            ("/deletedItems/", "Request_ResourceNotFound"),
            ("/deletedsecrets/", "SecretNotFound"),
            ("/deletedcertificates/", "CertificateNotFound"),
        ];
        let code = code.into_iter().find(|(part, _)| path.contains(part));
        match code.filter(|_| request.method().as_str() == "DELETE") {
            Some((_, code)) if self.purged.lock().insert(path.to_owned()) => {
                let body = format!(r#"{{"error":{{"code":"{code}","message":"not yet"}}}}"#);
                let headers = Headers::from(std::collections::HashMap::new());
                Ok(AsyncRawResponse::from_bytes(StatusCode::NotFound, headers, body))
            }
            _ => self.inner.execute_request(request).await,
        }
    }
}

/// Advances the time while the work waits for it.
pub(crate) async fn in_virtual_time<T>(clock: ManualClock, work: impl Future<Output = T>) -> T {
    let advance = async {
        loop {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            clock.advance(clock.time_until_next_deadline().unwrap_or(Duration::from_secs(1)));
        }
    };
    tokio::select! {
        biased;
        result = work => result,
        () = advance => unreachable!("the time advances forever"),
    }
}

/// Creates and deletes the identity as `deletions` say, one run for each, and checks that nothing is left.
pub(crate) async fn assert_nothing_is_left(environment: &Environment, deletions: &[Deletion]) {
    let http = LatePurge::new(environment);
    let (client, names) = (environment.client(Arc::<LatePurge>::clone(&http)), &environment.names);
    in_virtual_time(environment.clock(), async {
        environment.create(&client).await.unwrap();
        for deletion in deletions {
            let created = client.find_created(names, *deletion).await.unwrap();
            assert_ne!(created, CreatedObjects::default());
            client.delete(names, &created, *deletion, &|_| ()).await.unwrap();
        }
        let left = client.find_created(names, Deletion::Permanent).await.unwrap();
        assert_eq!(left, CreatedObjects::default(), "{deletions:?}");
    })
    .await;
    assert_eq!(http.purged.lock().len(), 3);
}
