"""The tests.

The service is imported before anything loads numpy: it asks for one thread, and what is replayed
here must be computed as it was there.
"""

import service  # noqa: F401
