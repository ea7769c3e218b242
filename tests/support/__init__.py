"""What tests share: makers, fakes, servers, clocks."""
