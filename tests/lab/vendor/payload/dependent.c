/* Stand-in for one of the driver's modules that stand on its core. */
#include <linux/module.h>

MODULE_LICENSE("@LICENSE@");
MODULE_VERSION("@VERSION@");

int @USES@(void);
int @OFFERS@(void);
int @OFFERS@(void)
{
	return 0;
}
@EXPORT@

static int __init part_init(void)
{
	return @USES@();
}

static void __exit part_exit(void)
{
}

module_init(part_init);
module_exit(part_exit);
