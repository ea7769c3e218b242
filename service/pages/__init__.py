"""What people see: one page style, one plot style, one kind of light."""
