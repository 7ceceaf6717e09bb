//! The life of the server: bind, serve, drain, end.

use std::future::IntoFuture;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use volley_engine::EngineHandle;

use crate::app::{App, router};
use crate::error::{Error, Result};
use crate::served::ServedModel;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// Largest request body.
    pub max_body_bytes: usize,
    /// Time for running answers to end after the first signal.
    pub drain_limit: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            max_body_bytes: 64 << 20,
            drain_limit: Duration::from_secs(10),
        }
    }
}

/// A server with an open port that does not answer yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Opens the port; 0 takes a free one.
    pub fn bind(host: &str, port: u16) -> Result<Self> {
        let open = || -> std::io::Result<Self> {
            let listener = TcpListener::bind((host, port))?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        open().map_err(|source| Error::Bind {
            address: format!("{host}:{port}"),
            source,
        })
    }

    /// The address, with the port chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until SIGINT or SIGTERM. Then no more requests are taken, running answers may end
    /// within the limit, and those left are cut off with an error; a second signal cuts at once.
    /// A lost engine ends it too, with an error.
    pub fn run(self, model: ServedModel, options: ServerOptions) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let engine = model.engine.clone();
        let result = runtime.block_on(self.serve(model, options));
        runtime.shutdown_timeout(Duration::from_secs(1));
        match engine.failure() {
            Some(reason) => Err(Error::EngineLost(reason.to_owned())),
            None => result,
        }
    }

    async fn serve(self, model: ServedModel, options: ServerOptions) -> Result<()> {
        let app = Arc::new(App::new(model, options.max_body_bytes));
        let listener = tokio::net::TcpListener::from_std(self.listener)?.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!("TCP_NODELAY: {error}");
            }
        });
        let mut signals = signals(app.model.engine.clone())?;
        let mut first = signals.clone();
        let drain = {
            let app = Arc::clone(&app);
            async move {
                wait(&mut first, 1).await;
                tracing::info!("ending: running answers have {:?}", options.drain_limit);
                app.drain();
            }
        };
        let serving = axum::serve(listener, router(Arc::clone(&app)));
        let mut serving = pin!(serving.with_graceful_shutdown(drain).into_future());
        let cut = async {
            wait(&mut signals, 1).await;
            let _ = timeout(options.drain_limit, wait(&mut signals, 2)).await;
        };
        tokio::select! {
            result = &mut serving => return result.map_err(Error::from),
            () = cut => tracing::warn!("cutting off the answers that still run"),
        }
        let engine = app.model.engine.clone();
        let stop = tokio::task::spawn_blocking(move || engine.shutdown());
        let _ = timeout(Duration::from_secs(2), async {
            let _ = stop.await;
            (&mut serving).await
        })
        .await;
        Ok(())
    }
}

/// Counts what asks the process to end: signals, and the loss of the engine.
fn signals(engine: EngineHandle) -> Result<watch::Receiver<u32>> {
    let (count, receiver) = watch::channel(0);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        let mut lost = pin!(lost(engine));
        let mut known = false;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = &mut lost, if !known => known = true,
            }
            count.send_modify(|count| *count += 1);
        }
    });
    Ok(receiver)
}

/// Returns once, when the engine has failed.
async fn lost(engine: EngineHandle) {
    while engine.failure().is_none() {
        sleep(Duration::from_millis(100)).await;
    }
}

async fn wait(signals: &mut watch::Receiver<u32>, count: u32) {
    let _ = signals.wait_for(|seen| *seen >= count).await;
}
