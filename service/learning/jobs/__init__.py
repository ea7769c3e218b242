"""Training jobs: their queue, and the processes that run them."""
