//! Connections whose other side has to take what is sent.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection whose writes fail with [`TimedOut`](io::ErrorKind::TimedOut) once the other side
/// has taken nothing of what waits for it in `limit`.
pub struct Patient<S> {
    inner: S,
    limit: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub fn new(inner: S, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            waiting: None,
        }
    }

    fn bounded(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(waiting.as_mut().poll(context));
        let message = format!("the client took nothing for {} s", limit.as_secs_f64());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = pin!(&mut self.inner).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = pin!(&mut self.inner).poll_write_vectored(context, slices);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.inner).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        pin!(&mut self.inner).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::{Arc, Mutex};
    use std::task::Waker;
    use std::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);

    /// The way to a reader: bytes that still fit, and who waits for room.
    #[derive(Clone, Default)]
    struct Way(Arc<Mutex<(usize, Option<Waker>)>>);

    impl Way {
        fn with_room(bytes: usize) -> Self {
            let way = Self::default();
            way.take(bytes);
            way
        }

        /// The reader takes some.
        fn take(&self, bytes: usize) {
            let mut state = self.0.lock().unwrap();
            state.0 += bytes;
            if let Some(waker) = state.1.take() {
                waker.wake();
            }
        }
    }

    impl AsyncWrite for Way {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let mut state = self.0.lock().unwrap();
            let written = bytes.len().min(state.0);
            state.0 -= written;
            if written == 0 {
                state.1 = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Ok(written))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn write(stream: &mut Patient<Way>, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|context| Pin::new(&mut *stream).poll_write(context, bytes)).await
    }

    #[tokio::test]
    async fn a_reader_that_takes_nothing_ends_the_connection() {
        let mut stream = Patient::new(Way::with_room(10), LIMIT);
        assert_eq!(write(&mut stream, &[0; 16]).await.unwrap(), 10);
        let begin = Instant::now();
        let error = write(&mut stream, &[0; 6]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "the client took nothing for 0.2 s");
        assert!(begin.elapsed() >= LIMIT);
    }

    #[tokio::test]
    async fn a_slow_reader_is_waited_for() {
        let way = Way::default();
        let mut stream = Patient::new(way.clone(), LIMIT);
        let reader = tokio::spawn(async move {
            for _ in 0..6 {
                sleep(LIMIT / 2).await;
                way.take(1);
            }
        });
        // Longer than the limit in all, never without a byte for so long.
        for _ in 0..6 {
            assert_eq!(write(&mut stream, &[0; 2]).await.unwrap(), 1);
        }
        reader.await.unwrap();
        let error = write(&mut stream, &[0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
