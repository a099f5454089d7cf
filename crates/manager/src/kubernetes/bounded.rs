//! Limits the answers of workload clusters. A tenant's Secret chooses the server, and its answers must not cost the others
//! the manager (S29).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use maas_client::JsonWeight;
use tower::BoxError;

/// The longest answer: 50 Nodes with 50 images each are some 2 MB.
const LENGTH: usize = 8 << 20;
/// What an answer may need in memory: twice as much as those Nodes.
const DECODED: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
enum TooLarge {
    #[error("the answer of the API server is longer than {} MiB", LENGTH >> 20)]
    Long,
    #[error("the answer of the API server holds so many values that it needs more than {} MiB of memory", DECODED >> 20)]
    Heavy,
}

pub(super) fn bounded<B>(response: Response<B>) -> Response<Bounded<B>> {
    response.map(|body| Bounded { body, length: 0, weight: JsonWeight::default() })
}

/// A body that fails as soon as it is too large.
pub(super) struct Bounded<B> {
    body: B,
    length: usize,
    weight: JsonWeight,
}

impl<B> Body for Bounded<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else { return Poll::Ready(None) };
        let frame = frame.map_err(Into::<BoxError>::into)?;
        if let Some(data) = frame.data_ref() {
            self.length += data.len();
            if self.length > LENGTH {
                return Poll::Ready(Some(Err(TooLarge::Long.into())));
            }
            if self.weight.add(data) > DECODED {
                return Poll::Ready(Some(Err(TooLarge::Heavy.into())));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
