//! Connections to providers: opened on demand, kept, and never to an untrusted process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::SocketProviders;
use super::call_error::ProviderCallError;
use super::trusted_socket::{self, SocketConnectError};
use crate::provider::name::ProviderName;

/// How long a call waits for a listener on an existing socket.
const READY_WAIT: Duration = Duration::from_secs(10);
/// How often the wait checks for a listener.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl SocketProviders {
    /// Returns the existing connection to a provider, or opens one.
    pub(super) async fn channel(&self, name: &ProviderName) -> Result<Channel, ProviderCallError> {
        let path = trusted_socket::find_socket(name, &self.settings.directories)
            .ok_or(ProviderCallError::NotFound)?;
        if let Some((known, channel)) = self.channels.lock().get(name)
            && *known == path
        {
            return Ok(channel.clone());
        }
        let stream = self.connect_when_listening(&path).await?;
        let channel = channel_from_stream(stream, &path);
        self.channels.lock().insert(name.clone(), (path, channel.clone()));
        Ok(channel)
    }

    /// Connects once the provider listens. A starting provider creates its socket before it listens, and a
    /// killed one leaves its socket behind; both cases wait.
    async fn connect_when_listening(&self, path: &Path) -> Result<UnixStream, SocketConnectError> {
        let since = self.clock.monotonic();
        loop {
            match trusted_socket::connect_trusted(path).await {
                Err(SocketConnectError::NotListening { .. })
                    if self.clock.monotonic().saturating_sub(since) < READY_WAIT =>
                {
                    self.clock.sleep(POLL_INTERVAL).await;
                }
                opened => return opened,
            }
        }
    }
}

/// Creates a channel from this connection. When it breaks, the channel checks and opens the next one in the
/// same way.
fn channel_from_stream(stream: UnixStream, path: &Path) -> Channel {
    let first = Arc::new(Mutex::new(Some(stream)));
    let path: Arc<PathBuf> = Arc::new(path.to_owned());
    let connector = service_fn(move |_| {
        let (first, path) = (Arc::clone(&first), Arc::clone(&path));
        async move {
            let first = first.lock().take();
            let stream = match first {
                Some(stream) => stream,
                None => trusted_socket::connect_trusted(&path).await?,
            };
            Ok::<_, SocketConnectError>(TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}
